// A server that runs on a GPU, over gRPC. Each test is skipped where there is
// none, and fails instead where GEMMD_REQUIRE_GPU=1.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"

namespace gemmd {
namespace {

using testing::ErrorRatio;
using testing::RandomRequest;
using testing::RunningServer;

class CudaServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return;
    ServerOptions options = testing::TestOptions();
    options.backend = "auto";
    const auto begin = std::chrono::steady_clock::now();
    server_ = new RunningServer(options);
    start_seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    info_ = new v1::GetServerInfoResponse;
    grpc::ClientContext context;
    const grpc::Status status =
        server_->gemm().GetServerInfo(&context, {}, info_);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(info_, nullptr);
  }

  void SetUp() override {
    if (server_ != nullptr) return;
    const char* const required = std::getenv("GEMMD_REQUIRE_GPU");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "GEMMD_REQUIRE_GPU=1, and there is no CUDA device";
    }
    GTEST_SKIP() << "there is no CUDA device";
  }

  static v1::SgemmResponse Multiply(const v1::SgemmRequest& request) {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    const grpc::Status status =
        server_->gemm().Sgemm(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  // The kernels that the server can run.
  static std::vector<v1::Kernel> Kernels() {
    std::vector<v1::Kernel> kernels;
    for (const v1::Kernel& kernel : info_->kernels()) {
      if (kernel.available()) kernels.push_back(kernel);
    }
    return kernels;
  }

  // By that kernel, with no more precision asked for than it has.
  static void Choose(const v1::Kernel& kernel, v1::SgemmRequest* request) {
    request->set_kernel(kernel.name());
    request->set_precision(kernel.precision());
  }

  static RunningServer* server_;
  static v1::GetServerInfoResponse* info_;
  static double start_seconds_;
};
RunningServer* CudaServerTest::server_ = nullptr;
v1::GetServerInfoResponse* CudaServerTest::info_ = nullptr;
double CudaServerTest::start_seconds_ = 0;

// First in the file, so that it meets a server that has served nothing.
TEST_F(CudaServerTest, TheFirstRequestIsAsFastAsTheHundredth) {
  std::vector<double> first;
  std::vector<double> hundredth;
  for (const v1::Kernel& kernel : Kernels()) {
    v1::SgemmRequest request = RandomRequest(64, 64, 64, 7);
    Choose(kernel, &request);
    std::vector<double> seconds;
    for (int i = 0; i < 100; ++i) {
      const v1::Execution execution = Multiply(request).execution();
      seconds.push_back(execution.h2d_seconds() + execution.compute_seconds() +
                        execution.d2h_seconds());
    }
    std::printf("%-16s on the device: first %.0f us, hundredth %.0f us\n",
                kernel.name().c_str(), 1e6 * seconds.front(),
                1e6 * seconds.back());
    first.push_back(seconds.front());
    std::nth_element(seconds.begin(), seconds.begin() + 50, seconds.end());
    hundredth.push_back(seconds[50]);
  }
  // What a first request pays where something is not warm, a module's load or
  // an allocation, is milliseconds.
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_LT(first[i], 2 * hundredth[i] + 300e-6) << Kernels()[i].name();
  }
}

TEST_F(CudaServerTest, AutoTakesTheGpuAndIsReadyInTime) {
  std::printf("ready after %.2f s\n", start_seconds_);
  EXPECT_EQ(info_->backend(), "cuda");
  EXPECT_LT(start_seconds_, 10);
  ASSERT_GE(info_->devices_size(), 1);
  EXPECT_NE(info_->devices(0).compute_capability(), "");
  EXPECT_GT(info_->devices(0).memory_bytes(), size_t{1} << 30);
}

TEST_F(CudaServerTest, EveryKernelAnswersWithinTheBoundOfFloat64) {
  uint64_t seed = 1;
  for (const v1::Kernel& kernel : Kernels()) {
    for (const bool transpose : {false, true}) {
      v1::SgemmRequest request =
          RandomRequest(131, 257, 65, seed++, -0.5f, transpose, !transpose);
      Choose(kernel, &request);
      const v1::SgemmResponse response = Multiply(request);
      EXPECT_LE(ErrorRatio(request, response), 1.0) << kernel.name();
      EXPECT_EQ(response.execution().kernel(), kernel.name());
    }
  }
}

// I6: alone, or among others under load, the bits are the same.
TEST_F(CudaServerTest, BatchMatesDoNotChangeBits) {
  const v1::SgemmRequest request = RandomRequest(96, 80, 112, 3);
  const std::string alone = Multiply(request).c();
  constexpr int kThreads = 32;
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const v1::SgemmRequest mate = RandomRequest(96, 80, 112, 100 + t);
      together.arrive_and_wait();
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(Multiply(request).c(), alone);
        Multiply(mate);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaServerTest, MetricsTellOfTheDevice) {
  Multiply(RandomRequest(32, 32, 32, 5));
  EXPECT_TRUE(testing::Eventually([] {
    const testing::Exposition metrics = server_->Metrics();
    return metrics.Sum("gemmd_device_memory_bytes") > 0 &&
           metrics.Sum("gemmd_device_up") >= 1;
  }));
  const testing::Exposition metrics = server_->Metrics();
  EXPECT_THAT(metrics.problems, ::testing::IsEmpty());
  EXPECT_GT(metrics.Sum("gemmd_transfer_bytes_total"), 0);
}

}  // namespace
}  // namespace gemmd
