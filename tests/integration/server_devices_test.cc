// One server with several devices: what is shared between them, and where
// resident matrices go.

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"
#include "tests/support/faulty_backend.h"

namespace gemmd {
namespace {

using testing::FaultyBackend;
using testing::RandomRequest;
using testing::RunningServer;

constexpr int kDevices = 2;

class ServerDevicesTest : public ::testing::Test {
 protected:
  explicit ServerDevicesTest(const ServerOptions& options = Options())
      : server_(
            options,
            [](const BackendOptions& backend, const KernelRegistry& registry)
                -> absl::StatusOr<std::unique_ptr<Backend>> {
              return FaultyBackend::Create(backend, registry, kDevices);
            }) {}

  static ServerOptions Options() {
    ServerOptions options = testing::TestOptions();
    options.streams_per_device = 1;
    options.split_gflop = 1;
    return options;
  }

  grpc::Status Multiply(const v1::SgemmRequest& request,
                        v1::SgemmResponse* response) {
    grpc::ClientContext context;
    return server_.gemm().Sgemm(&context, request, response);
  }

  // Makes a matrix resident, as the product of itself and 1.
  void Keep(const std::string& id, v1::Operand* operand) {
    v1::SgemmRequest request;
    *request.mutable_a() = *operand;
    request.set_alpha(1);
    v1::Operand& identity = *request.mutable_b();
    identity.set_rows(operand->cols());
    identity.set_cols(operand->cols());
    std::vector<float> ones(operand->cols() * operand->cols());
    for (uint64_t i = 0; i < operand->cols(); ++i) {
      ones[i * operand->cols() + i] = 1;
    }
    identity.set_data(ones.data(), ones.size() * sizeof(float));
    request.mutable_output()->mutable_resident()->set_matrix_id(id);
    v1::SgemmResponse response;
    const grpc::Status status = Multiply(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    operand->clear_data();
    operand->set_matrix_id(id);
  }

  std::string Fetch(const std::string& id) {
    grpc::ClientContext context;
    v1::DownloadMatrixRequest request;
    request.set_matrix_id(id);
    auto reader = server_.gemm().DownloadMatrix(&context, request);
    std::string bytes;
    v1::DownloadMatrixResponse response;
    while (reader->Read(&response)) bytes += response.chunk();
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return bytes;
  }

  // The devices that have a matrix.
  int Copies(const std::string& id) {
    grpc::ClientContext context;
    v1::ListMatricesResponse response;
    EXPECT_TRUE(server_.gemm().ListMatrices(&context, {}, &response).ok());
    for (const v1::Matrix& matrix : response.matrices()) {
      if (matrix.matrix_id() == id) return matrix.devices_size();
    }
    return 0;
  }

  // Some rows of the product, against float64.
  static void ExpectRows(const v1::SgemmRequest& request,
                         const std::string& product, std::mt19937& random) {
    const auto m = static_cast<size_t>(request.a().rows());
    const auto k = static_cast<size_t>(request.a().cols());
    const auto n = static_cast<size_t>(request.b().cols());
    ASSERT_EQ(product.size(), m * n * sizeof(float));
    const auto at = [](const std::string& x, size_t i) {
      float value;
      std::memcpy(&value, &x[i * sizeof(float)], sizeof(value));
      return static_cast<double>(value);
    };
    for (int checked = 0; checked < 10; ++checked) {
      const size_t i = checked == 0 ? 0 : checked == 1 ? m - 1 : random() % m;
      for (size_t j = 0; j < n; ++j) {
        double sum = 0;
        double magnitude = 0;
        for (size_t l = 0; l < k; ++l) {
          const double term = at(request.a().data(), i * k + l) *
                              at(request.b().data(), l * n + j);
          sum += term;
          magnitude += std::abs(term);
        }
        const double bound = std::ldexp((k + 4) * magnitude, -24);
        ASSERT_TRUE(std::abs(at(product, i * n + j) - sum) <= bound)
            << "row " << i << ", column " << j;
      }
    }
  }

  int64_t Batches() {
    return static_cast<int64_t>(
        server_.Metrics().Sum("gemmd_batch_size_count"));
  }

  const unsigned seed_ = std::random_device{}();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                      ::testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  RunningServer server_;
};

TEST_F(ServerDevicesTest, ALargeProductIsSharedByRows) {
  const v1::SgemmRequest request = RandomRequest(1100, 700, 650, seed_);
  v1::SgemmResponse response;
  const int64_t before = Batches();
  ASSERT_TRUE(Multiply(request, &response).ok());
  ExpectRows(request, response.c(), random_);
  EXPECT_EQ(Batches() - before, kDevices);
}

TEST_F(ServerDevicesTest,
       ALargeProductOfResidentMatricesIsGatheredWhereItLives) {
  const v1::SgemmRequest inlined = RandomRequest(1100, 700, 650, seed_);
  v1::SgemmRequest request = inlined;
  Keep("a", request.mutable_a());
  Keep("b", request.mutable_b());
  request.mutable_output()->mutable_resident()->set_matrix_id("c");
  v1::SgemmResponse response;
  for (int i = 0; i < 3; ++i) {  // the later ones find copies, and replace "c"
    const grpc::Status status = Multiply(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectRows(inlined, Fetch("c"), random_);
  }
  EXPECT_EQ(Copies("a"), kDevices);
  EXPECT_EQ(Copies("b"), kDevices);
  EXPECT_EQ(Copies("c"), 1);
  // Nothing but what has a name is kept.
  EXPECT_EQ(server_.Metrics().Value("gemmd_matrices"), 3);
  EXPECT_EQ(server_.Metrics().Sum("gemmd_matrix_store_bytes"),
            4.0 * (kDevices * (1100 * 650 + 650 * 700) + 1100 * 700));
}

class ServerLittleRoomTest : public ServerDevicesTest {
 protected:
  // A client's share, half of both stores, is for the operands and the product
  // of the test, but not for rows of it on the other device as well.
  static ServerOptions LittleRoom() {
    ServerOptions options = Options();
    options.matrix_store_bytes = 8'500'000;
    return options;
  }
  ServerLittleRoomTest() : ServerDevicesTest(LittleRoom()) {}
};

TEST_F(ServerLittleRoomTest, ALargeProductIsMadeOnOneDeviceThen) {
  const v1::SgemmRequest inlined = RandomRequest(1100, 700, 650, seed_);
  v1::SgemmRequest request = inlined;
  Keep("a", request.mutable_a());
  Keep("b", request.mutable_b());
  request.mutable_output()->mutable_resident()->set_matrix_id("c");
  v1::SgemmResponse response;
  const grpc::Status status = Multiply(request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ExpectRows(inlined, Fetch("c"), random_);
  EXPECT_EQ(Copies("c"), 1);
  EXPECT_EQ(server_.Metrics().Value("gemmd_matrices"), 3);
}

// Clients that all use one matrix, on one device at first.
TEST_F(ServerDevicesTest, AMatrixInDemandComesToBothDevices) {
  v1::SgemmRequest request = RandomRequest(200, 300, 250, seed_);
  Keep("a", request.mutable_a());
  Keep("b", request.mutable_b());
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      for (int j = 0; j < 50 && Copies("b") < kDevices; ++j) {
        v1::SgemmResponse response;
        EXPECT_TRUE(Multiply(request, &response).ok());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(Copies("a"), kDevices);
  EXPECT_EQ(Copies("b"), kDevices);
}

}  // namespace
}  // namespace gemmd
