// Sgemm over a real connection: answers, errors, ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "google/rpc/error_details.pb.h"
#include "proto/error_details.h"
#include "proto/status.h"
#include "server/observe/logging.h"
#include "server/rpc/sgemm_task.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {
namespace {

using std::chrono::system_clock;
using testing::HasSubstr;

class SgemmCallTest : public RpcFixture {
 protected:
  absl::StatusOr<v1::SgemmResponse> Call(const v1::SgemmRequest& request) {
    grpc::ClientContext context;
    return Call(request, context);
  }

  absl::StatusOr<v1::SgemmResponse> Call(const v1::SgemmRequest& request,
                                         grpc::ClientContext& context) {
    v1::SgemmResponse response;
    const grpc::Status status = stub_->Sgemm(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  // Of the status's ErrorInfo.
  static std::map<std::string, std::string> ErrorMetadata(
      const absl::Status& status) {
    const auto payload =
        status.GetPayload("type.googleapis.com/google.rpc.ErrorInfo");
    google::rpc::ErrorInfo detail;
    EXPECT_TRUE(payload.has_value() &&
                detail.ParseFromString(std::string(*payload)))
        << status;
    return {detail.metadata().begin(), detail.metadata().end()};
  }
};

TEST_F(SgemmCallTest, AnswersTheProductAndHowItWasRun) {
  StartServer();
  v1::SgemmRequest request = Product(17, 33, 65);
  request.set_kernel("openblas");
  const auto response = Call(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ExpectProduct(request, *response);
  const v1::Execution& execution = response->execution();
  EXPECT_EQ(execution.kernel(), "openblas");
  EXPECT_EQ(execution.precision(), v1::PRECISION_FP32);
  EXPECT_EQ(execution.batch_size(), 1);
  EXPECT_GT(execution.decode_seconds(), 0.0);
  EXPECT_GT(execution.compute_seconds(), 0.0);
  EXPECT_GT(execution.encode_seconds(), 0.0);
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, LargeProductsGoThroughWorkersAndComeBackWhole) {
  StartServer();
  const v1::SgemmRequest request = Product(600, 700, 800);  // 4 MiB
  const auto response = Call(request);
  ASSERT_TRUE(response.ok()) << response.status();
  ExpectProduct(request, *response);
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, BetaAddsC) {
  StartServer();
  v1::SgemmRequest request = Product(4, 4, 0);
  request.set_beta(2.0f);
  *request.mutable_c() = Product(4, 4, 4).a();
  const auto response = Call(request);
  ASSERT_TRUE(response.ok()) << response.status();
  const auto* c = reinterpret_cast<const float*>(request.c().data().data());
  const auto* got = reinterpret_cast<const float*>(response->c().data());
  for (int i = 0; i < 16; ++i) EXPECT_EQ(got[i], 2.0f * c[i]) << i;
}

TEST_F(SgemmCallTest, ProductsWithNothingInThemAreAnswered) {
  StartServer();
  for (const auto& [m, n, k] :
       {std::tuple(0, 3, 4), {3, 0, 4}, {3, 4, 0}, {0, 0, 0}}) {
    const auto response = Call(Product(m, n, k));
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->rows(), m);
    EXPECT_EQ(response->cols(), n);
    EXPECT_EQ(response->c(), std::string(4 * m * n, '\0'));
  }
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, ProductsWithNothingInThemMayBeHugeOtherwise) {
  StartServer();
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  for (const char* const kernel : {"", "openblas", "reference"}) {
    for (const auto& [rows, cols] :
         {std::pair(uint64_t{0}, kHuge), {kHuge, uint64_t{0}}}) {
      v1::SgemmRequest request;
      request.set_kernel(kernel);
      request.mutable_a()->set_rows(rows);
      request.mutable_b()->set_cols(cols);
      request.mutable_a()->set_data("");
      request.mutable_b()->set_data("");
      const auto response = Call(request);
      ASSERT_TRUE(response.ok()) << response.status();
      EXPECT_EQ(response->rows(), rows);
      EXPECT_EQ(response->cols(), cols);
      EXPECT_EQ(response->c(), "");
    }
  }
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, PaddedRowsAreRead) {
  StartServer();
  const v1::SgemmRequest packed = Product(5, 3, 4);
  v1::SgemmRequest padded = packed;
  padded.mutable_a()->set_leading_dimension(6);
  padded.mutable_a()->clear_data();
  for (int row = 0; row < 5; ++row) {
    *padded.mutable_a()->mutable_data() +=
        packed.a().data().substr(16 * row, 16) + std::string(8, '\xff');
  }
  const auto response = Call(padded);
  ASSERT_TRUE(response.ok()) << response.status();
  ExpectProduct(packed, *response);
}

TEST_F(SgemmCallTest, BadRequestsGetCodeAndFieldOnTheWire) {
  StartServer();
  v1::SgemmRequest request = Product(2, 2, 2);
  request.mutable_a()->set_data("short");
  const absl::Status status = Call(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a.data has 5 bytes; rows * cols * 4 = 16");
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.BadRequest");
  ASSERT_TRUE(payload.has_value());
  google::rpc::BadRequest detail;
  ASSERT_TRUE(detail.ParseFromString(std::string(*payload)));
  EXPECT_EQ(detail.field_violations(0).field(), "a.data");
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, AnUnknownKernelIsNotFoundWithTheNamesThereAre) {
  StartServer();
  v1::SgemmRequest request = Product(2, 2, 2);
  request.set_kernel("no_such_kernel");
  const absl::Status status = Call(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("openblas"));
  const auto payload =
      status.GetPayload("type.googleapis.com/google.rpc.ResourceInfo");
  ASSERT_TRUE(payload.has_value());
  google::rpc::ResourceInfo detail;
  ASSERT_TRUE(detail.ParseFromString(std::string(*payload)));
  EXPECT_EQ(detail.resource_type(), "gemmd.v1.Kernel");
  EXPECT_EQ(detail.resource_name(), "no_such_kernel");
}

TEST_F(SgemmCallTest, AKernelThatCannotRunHereComesWithTheNamesOfThoseThatCan) {
  StartServer();
  v1::SgemmRequest request = Product(2, 2, 2);
  for (const char* const name : {"naive", "no_such_kernel"}) {
    request.set_kernel(name);
    const absl::Status status = Call(request).status();
    EXPECT_EQ(status.code(), name == std::string("naive")
                                 ? absl::StatusCode::kFailedPrecondition
                                 : absl::StatusCode::kNotFound);
    EXPECT_EQ(ErrorMetadata(status).at("kernels"), "reference, openblas");
  }
}

// I4: the wire alone judges a request, before anything is taken for it.
TEST_F(SgemmCallTest, WhatTheWireRefusesReachesNothingBelowIt) {
  StartServer();
  backend_->gate().Close();
  using Change = void (*)(v1::SgemmRequest&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"a.data", [](auto& r) { r.mutable_a()->mutable_data()->pop_back(); }},
      {"a.rows", [](auto& r) { r.mutable_a()->set_rows(uint64_t{1} << 63); }},
      {"b", [](auto& r) { r.clear_b(); }},
      {"b.leading_dimension",
       [](auto& r) { r.mutable_b()->set_leading_dimension(1); }},
      {"c", [](auto& r) { r.set_beta(1); }},
      {"precision",
       [](auto& r) { r.set_precision(static_cast<v1::Precision>(99)); }},
      {"priority",
       [](auto& r) { r.set_priority(static_cast<v1::Priority>(99)); }},
      {"request_id", [](auto& r) { r.set_request_id(std::string(65, 'x')); }},
  };
  for (const auto& [what, change] : changes) {
    v1::SgemmRequest request = Product(5, 6, 7);
    change(request);
    EXPECT_EQ(Call(request).status().code(), absl::StatusCode::kInvalidArgument)
        << what;
  }
  EXPECT_EQ(backend_->gate().waiting(), 0);
  EXPECT_EQ(scheduler_->queued_requests(), 0);
  EXPECT_TRUE(
      absl::StrContains(metrics_.Render(), "gemmd_problem_flops_count 0\n"));
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, TheServersKernelIsForRequestsThatNameNone) {
  RpcOptions options;
  options.kernel = "reference";
  StartServer(options);
  v1::SgemmRequest request = Product(2, 2, 2);
  EXPECT_EQ(Call(request)->execution().kernel(), "reference");
  request.set_kernel("openblas");
  EXPECT_EQ(Call(request)->execution().kernel(), "openblas");
}

TEST_F(SgemmCallTest, MessagesOverTheLimitAreOutOfRange) {
  RpcOptions options;
  options.max_inline_bytes = size_t{1} << 20;
  StartServer(options);
  // 2 MiB in; then little in, and 4 MiB out.
  for (const auto& [m, n, k] : {std::tuple(512, 1, 1024), {1024, 1024, 1}}) {
    const absl::Status status = Call(Product(m, n, k)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << m;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--max-inline-bytes"));
    EXPECT_EQ(RetryDelay(status), std::nullopt);
    EXPECT_EQ(ErrorMetadata(status).at("flag"), "--max-inline-bytes");
    EXPECT_EQ(ErrorMetadata(status).at("limit"), "1048576");
  }
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, AFullByteBudgetIsResourceExhaustedWithRetryInfo) {
  admission_options_.max_bytes = 1 << 20;
  StartServer();
  backend_->gate().Close();
  auto first = std::async(std::launch::async,
                          [&] { return Call(Product(400, 400, 100)); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  const absl::Status status = Call(Product(400, 400, 100)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(status).has_value()) << status;
  backend_->gate().Open();
  EXPECT_TRUE(first.get().ok());
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, AClientIdentityMustBe32HexDigits) {
  StartServer();
  const v1::SgemmRequest request = Product(2, 2, 2);
  for (const char* bad : {"", "abc", "0123456789abcdef0123456789abcdeg",
                          "0123456789abcdef0123456789abcdef0"}) {
    grpc::ClientContext context;
    context.AddMetadata("gemmd-client", bad);
    EXPECT_EQ(Call(request, context).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
  grpc::ClientContext twice;
  twice.AddMetadata("gemmd-client", "0123456789abcdef0123456789abcdef");
  twice.AddMetadata("gemmd-client", "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(Call(request, twice).status().code(),
            absl::StatusCode::kInvalidArgument);
  grpc::ClientContext good;
  good.AddMetadata("gemmd-client", "0123456789abcdef0123456789ABCDEF");
  EXPECT_TRUE(Call(request, good).ok());
}

TEST_F(SgemmCallTest, TheTaskKnowsWhoAsksHowUrgentlyAndUntilWhen) {
  StartServer();
  backend_->gate().Close();
  v1::SgemmRequest request = Product(8, 8, 8);
  request.set_priority(v1::PRIORITY_BULK);
  grpc::ClientContext context;
  context.AddMetadata("gemmd-client", "0123456789abcdef0123456789ABCDEF");
  context.set_deadline(system_clock::now() + std::chrono::seconds(600));
  auto call =
      std::async(std::launch::async, [&] { return Call(request, context); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  {
    const auto task = backend_->gate().first();
    const TaskSpec& spec = task->spec();
    EXPECT_EQ(spec.client, "0123456789abcdef0123456789abcdef");
    EXPECT_EQ(spec.priority, Priority::kBulk);
    EXPECT_NEAR(Seconds(spec.deadline - spec.arrival), 600.0, 5.0);
  }
  backend_->gate().Open();
  EXPECT_TRUE(call.get().ok());
}

TEST_F(SgemmCallTest, ACancelledProductNeverReachesTheDevice) {
  StartServer();
  backend_->gate().Close();
  auto blocker =
      std::async(std::launch::async, [&] { return Call(Product(8, 8, 8)); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  grpc::ClientContext context;
  auto queued = std::async(std::launch::async,
                           [&] { return Call(Product(9, 9, 9), context); });
  WaitFor([&] { return scheduler_->queued_requests() == 1; });
  context.TryCancel();
  EXPECT_EQ(queued.get().status().code(), absl::StatusCode::kCancelled);
  // Its memory is free although the device is still busy with the first.
  WaitFor([&] { return admission_->requests() == 1; });
  backend_->gate().Open();
  EXPECT_TRUE(blocker.get().ok());
  ExpectNothingHeld();
  // Counted when gRPC has ended the call, which is later.
  WaitFor([&] {
    return absl::StrContains(metrics_.Render(), "grpc_status=\"CANCELLED\"} 1");
  });
}

TEST_F(SgemmCallTest, AQueuedProductEndsAtItsDeadline) {
  StartServer();
  backend_->gate().Close();
  auto blocker =
      std::async(std::launch::async, [&] { return Call(Product(8, 8, 8)); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + std::chrono::milliseconds(50));
  EXPECT_EQ(Call(Product(9, 9, 9), context).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  WaitFor([&] { return admission_->requests() == 1; });
  backend_->gate().Open();
  EXPECT_TRUE(blocker.get().ok());
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, AProductThatTheDeviceLosesIsAnInternalErrorAndNoHang) {
  StartServer();
  backend_->gate().Close();
  auto lost =
      std::async(std::launch::async, [&] { return Call(Product(8, 8, 8)); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  backend_->gate().Drop();
  ASSERT_EQ(lost.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(lost.get().status().code(), absl::StatusCode::kInternal);
  backend_->gate().Open();
  EXPECT_TRUE(Call(Product(8, 8, 8)).ok());
  ExpectNothingHeld();
}

TEST_F(SgemmCallTest, AFailureIsLoggedWithWhoseProductItWas) {
  testing::internal::CaptureStderr();
  StartServer();
  backend_->gate().Close();
  grpc::ClientContext context;
  context.AddMetadata("gemmd-client", "0123456789abcdef0123456789abcdef");
  v1::SgemmRequest request = Product(7, 8, 9);
  request.set_request_id("job-17");
  request.set_kernel("reference");
  auto lost =
      std::async(std::launch::async, [&] { return Call(request, context); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  backend_->gate().Drop();
  EXPECT_FALSE(lost.get().ok());
  server_.reset();  // the line is written after the answer
  EXPECT_TRUE(FlushLog(std::chrono::seconds(20)));
  // Not the id, which is a secret.
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(" client=sha256:3eb1bd43 "
                        "request_id=job-17 shape=7x8x9 kernel=reference\n"));
}

TEST_F(SgemmCallTest, AProductShedForMemoryIsNotCountedAsAFullQueue) {
  CountShed(QuotaError("device-memory", "", absl::ZeroDuration()), metrics_);
  CountShed(QuotaError("queue-max-bytes", "", absl::ZeroDuration()), metrics_);
  CountShed(QuotaError("queue-max-requests", "", absl::ZeroDuration()),
            metrics_);
  const std::string series = metrics_.Render();
  EXPECT_THAT(series,
              HasSubstr("gemmd_requests_shed_total{reason=\"memory\"} 2\n"));
  EXPECT_THAT(
      series,
      HasSubstr("gemmd_requests_shed_total{reason=\"queue_full\"} 1\n"));
}

TEST_F(SgemmCallTest, ManyProductsAtOnceAreAllRightAndAllAccountedFor) {
  StartServer();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::vector<std::thread> clients;
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&, t] {
      std::mt19937_64 random(seed + t);
      for (int i = 0; i < 30; ++i) {
        const v1::SgemmRequest request =
            Product(random() % 70, random() % 70, random() % 70, random());
        const auto response = Call(request);
        ASSERT_TRUE(response.ok()) << response.status();
        ExpectProduct(request, *response);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ExpectNothingHeld();
  WaitFor([&] {
    return metrics_.Render().find(
               "grpc_server_call_completed_total{grpc_method=\"gemmd.v1."
               "GemmService/Sgemm\",grpc_status=\"OK\"} 240") !=
           std::string::npos;
  });
}

}  // namespace
}  // namespace gemmd
