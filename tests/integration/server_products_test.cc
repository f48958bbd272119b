// Products, information and refusals of a whole server, over gRPC.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <stdlib.h>

#include <filesystem>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using testing::ErrorRatio;
using ::testing::HasSubstr;
using testing::RandomRequest;
using testing::RawCall;
using testing::RunningServer;

class ServerProductsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer; }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static grpc::Status Sgemm(const v1::SgemmRequest& request,
                            v1::SgemmResponse* response) {
    grpc::ClientContext context;
    return server_->gemm().Sgemm(&context, request, response);
  }

  static RunningServer* server_;
};
RunningServer* ServerProductsTest::server_ = nullptr;

TEST_F(ServerProductsTest, AreWithinThePromisedBoundOfFloat64) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 60; ++i) {
    const auto size = [&random] { return 1 + random() % (1 + random() % 90); };
    const int64_t m = size(), n = size(), k = size();
    v1::SgemmRequest request = RandomRequest(
        m, n, k, random(), i % 3 == 0 ? 0 : 0.5f, random() % 2, random() % 2);
    if (i % 2 == 0) request.set_alpha(-1.25f);
    SCOPED_TRACE(absl::StrCat("m=", m, " n=", n, " k=", k));
    v1::SgemmResponse response;
    const grpc::Status status = Sgemm(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(ErrorRatio(request, response), 1.0);
    EXPECT_NE(response.execution().kernel(), "");
    EXPECT_EQ(response.execution().precision(), v1::PRECISION_FP32);
    EXPECT_GE(response.execution().batch_size(), 1u);
    EXPECT_GT(response.execution().compute_seconds(), 0);
  }
}

TEST_F(ServerProductsTest, OfTwoMebibytesComeWholeThroughManySlices) {
  const v1::SgemmRequest request = RandomRequest(700, 300, 640, 11);
  v1::SgemmResponse response;
  const grpc::Status status = Sgemm(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_LE(ErrorRatio(request, response), 1.0);
}

TEST_F(ServerProductsTest, AreTheSameBitsEveryTime) {
  const v1::SgemmRequest request = RandomRequest(65, 33, 129, 7);
  v1::SgemmResponse first;
  ASSERT_TRUE(Sgemm(request, &first).ok());
  for (int i = 0; i < 5; ++i) {
    v1::SgemmResponse again;
    ASSERT_TRUE(Sgemm(request, &again).ok());
    EXPECT_EQ(again.c(), first.c());
  }
}

// I6 at the wire: neither batch-mates nor load nor transport change bits.
TEST(ServerBitsTest, AreThoseOfTheProductAloneAmongMatesAndOverEachTransport) {
  std::string directory = ::testing::TempDir() + "/gemmd_bits_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  ServerOptions options = testing::TestOptions();
  options.unix_socket = directory + "/socket";
  // What comes within this shares a batch.
  options.max_queue_delay = absl::Milliseconds(300);
  RunningServer server(options);
  const std::shared_ptr<grpc::Channel> channels[] = {
      server.Connect(),
      grpc::CreateChannel("unix:" + options.unix_socket,
                          grpc::InsecureChannelCredentials())};
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));

  for (const char* kernel : {"openblas", "reference"}) {
    const auto multiply = [&](int transport, uint64_t product_seed) {
      v1::SgemmRequest request = RandomRequest(65, 33, 129, product_seed);
      request.set_kernel(kernel);
      grpc::ClientContext context;
      v1::SgemmResponse response;
      const grpc::Status status = v1::GemmService::NewStub(channels[transport])
                                      ->Sgemm(&context, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      return response;
    };
    const v1::SgemmResponse alone = multiply(0, seed);
    EXPECT_EQ(alone.execution().batch_size(), 1);
    EXPECT_EQ(multiply(1, seed).c(), alone.c());

    std::vector<std::thread> mates;
    for (int i = 1; i <= 64; ++i) {
      mates.emplace_back([&, i] { multiply(i % 2, seed + i); });
    }
    auto over_unix =
        std::async(std::launch::async, [&] { return multiply(1, seed); });
    for (const v1::SgemmResponse& among :
         {multiply(0, seed), over_unix.get()}) {
      EXPECT_GT(among.execution().batch_size(), 1);
      EXPECT_EQ(among.c(), alone.c()) << kernel;
    }
    for (std::thread& mate : mates) mate.join();
  }
  std::filesystem::remove_all(directory);
}

TEST_F(ServerProductsTest, OfNothingAreValid) {
  for (const auto& [m, n, k] : {std::tuple{0, 3, 2}, {3, 0, 2}, {2, 3, 0}}) {
    const v1::SgemmRequest request = RandomRequest(m, n, k, 1);
    v1::SgemmResponse response;
    const grpc::Status status = Sgemm(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.c(), std::string(m * n * sizeof(float), '\0'));
  }
}

TEST_F(ServerProductsTest, UseTheKernelThatIsNamed) {
  for (const char* kernel : {"openblas", "reference"}) {
    v1::SgemmRequest request = RandomRequest(5, 6, 7, 3);
    request.set_kernel(kernel);
    v1::SgemmResponse response;
    const grpc::Status status = Sgemm(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.execution().kernel(), kernel);
    EXPECT_LE(ErrorRatio(request, response), 1.0);
  }
}

TEST_F(ServerProductsTest, InfoTellsVersionDevicesKernelsAndLimits) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  const grpc::Status status = server_->gemm().GetServerInfo(
      &context, v1::GetServerInfoRequest(), &info);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(info.version(), ::testing::StartsWith("0."));
  EXPECT_THAT(info.build(), HasSubstr("revision "));
  EXPECT_EQ(info.backend(), "cpu");
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_NE(info.devices(0).name(), "");
  EXPECT_GE(info.devices(0).streams(), 1u);
  std::map<std::string, v1::Kernel> kernels;
  for (const v1::Kernel& kernel : info.kernels()) {
    kernels[kernel.name()] = kernel;
    EXPECT_EQ(kernel.available(), kernel.unavailable_reason().empty());
  }
  EXPECT_TRUE(kernels["openblas"].available());
  EXPECT_FALSE(kernels["naive"].available());
  const ServerOptions defaults = testing::TestOptions();
  // Automatic: 256 MiB, less in a small container.
  EXPECT_GT(info.limits().max_inline_bytes(), 0u);
  EXPECT_LE(info.limits().max_inline_bytes(), 256u << 20);
  EXPECT_EQ(info.limits().max_queue_bytes(), defaults.queue_max_bytes);
  EXPECT_EQ(info.limits().max_batch_requests(), 64u);
}

// The google.rpc details of an error.
template <typename Detail>
bool GetDetail(const grpc::Status& status, Detail* detail) {
  google::rpc::Status rpc;
  if (!rpc.ParseFromString(status.error_details())) return false;
  for (const auto& any : rpc.details()) {
    if (any.UnpackTo(detail)) return true;
  }
  return false;
}

TEST_F(ServerProductsTest, ThatAreMalformedAreRefusedByField) {
  struct Case {
    const char* field;
    std::function<void(v1::SgemmRequest&)> spoil;
  };
  const Case cases[] = {
      {"a.data", [](auto& r) { r.mutable_a()->mutable_data()->pop_back(); }},
      {"a.leading_dimension",
       [](auto& r) { r.mutable_a()->set_leading_dimension(3); }},
      {"b", [](auto& r) { r.mutable_b()->set_rows(r.b().rows() + 1); }},
      {"a",
       [](auto& r) {
         r.mutable_a()->set_rows(uint64_t{1} << 40);
         r.mutable_a()->set_cols(uint64_t{1} << 40);
       }},
      {"c", [](auto& r) { r.set_beta(0.5f); }},
      {"c", [](auto& r) { *r.mutable_c() = r.a(); }},
      {"precision",
       [](auto& r) { r.set_precision(static_cast<v1::Precision>(77)); }},
      {"priority",
       [](auto& r) { r.set_priority(static_cast<v1::Priority>(77)); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(65, 'x')); }}};
  for (const Case& c : cases) {
    v1::SgemmRequest request = RandomRequest(4, 5, 6, 1);
    c.spoil(request);
    v1::SgemmResponse response;
    const grpc::Status status = Sgemm(request, &response);
    SCOPED_TRACE(absl::StrCat(c.field, ": ", status.error_message()));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    google::rpc::BadRequest bad;
    ASSERT_TRUE(GetDetail(status, &bad));
    ASSERT_GE(bad.field_violations_size(), 1);
    EXPECT_THAT(bad.field_violations(0).field(),
                ::testing::StartsWith(c.field));
  }
}

TEST_F(ServerProductsTest, WithAnUnknownKernelNameThoseThereAre) {
  v1::SgemmRequest request = RandomRequest(4, 5, 6, 1);
  request.set_kernel("magic");
  v1::SgemmResponse response;
  grpc::Status status = Sgemm(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("magic"), HasSubstr("openblas")));
  request.set_kernel("naive");  // known, but of a GPU
  status = Sgemm(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(ServerProductsTest, ThatAreNotProtobufAreRefused) {
  const std::string sgemm = "/gemmd.v1.GemmService/Sgemm";
  const std::string whole = RandomRequest(4, 5, 6, 1).SerializeAsString();
  // A field of 3 GiB announced in a message of 20 bytes.
  const std::string claim("\xa2\x06\x80\x80\x80\x80\x0c", 7);
  for (const std::string& bytes :
       {whole.substr(0, whole.size() / 2), std::string(100, '\xff'),
        claim + std::string(13, 'x')}) {
    const grpc::Status status = RawCall(server_->channel(), sgemm, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << status.error_message();
  }
  EXPECT_TRUE(RawCall(server_->channel(), sgemm, whole).ok());
}

TEST_F(ServerProductsTest, OverTheInlineLimitNameItsFlag) {
  ServerOptions options = testing::TestOptions();
  options.max_inline_bytes = 64 << 10;
  RunningServer small(options);
  grpc::ClientContext context;
  v1::SgemmResponse response;
  const grpc::Status status =
      small.gemm().Sgemm(&context, RandomRequest(256, 1, 256, 1), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr("--max-inline-bytes"));
}

TEST_F(ServerProductsTest, UnknownMethodsAreUnimplemented) {
  EXPECT_EQ(RawCall(server_->channel(), "/gemmd.v1.GemmService/Nothing", "")
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace gemmd
