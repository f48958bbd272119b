// A server of two GPUs, one of which fails under its work: a launch that writes
// where nothing is, which a process does not survive.

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/error_details.h"
#include "proto/status.h"
#include "server/execute/cuda/cuda_backend.h"
#include "tests/gpu/backend/wild_write.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::Eventually;
using testing::RandomRequest;
using testing::RunningServer;

constexpr int kLost = 1;  // the device that fails

class WildKernel : public SgemmKernel {
 public:
  WildKernel()
      : SgemmKernel({.name = "wild",
                     .description = "writes where nothing is",
                     .space = MemorySpace::kDevice}) {}
  absl::Status Supports(const SgemmArgs&) const override { return {}; }
  absl::Status Launch(std::span<const SgemmArgs>,
                      const LaunchContext& context) const override {
    WildWrite(context.stream);
    return absl::OkStatus();
  }
};

// A real device that runs `wild` in the place of its batches once it is told
// to.
class FailingDevice : public Device {
 public:
  FailingDevice(Device& inner, const SgemmKernel& wild)
      : inner_(inner), wild_(wild) {}

  void FailFromNowOn() { failing_ = true; }

  const DeviceInfo& info() const override { return inner_.info(); }
  void Execute(Batch batch, BatchDone done) override {
    if (failing_) batch.kernel = &wild_;
    inner_.Execute(std::move(batch), std::move(done));
  }
  absl::Status Warm() override { return inner_.Warm(); }
  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override {
    return inner_.AllocateResident(bytes);
  }
  size_t resident_capacity() const override {
    return inner_.resident_capacity();
  }

 private:
  Device& inner_;
  const SgemmKernel& wild_;
  std::atomic<bool> failing_{false};
};

class FailingBackend : public Backend {
 public:
  explicit FailingBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)) {
    for (const auto& device : inner_->devices()) {
      devices_.push_back(std::make_unique<FailingDevice>(*device, wild_));
    }
  }
  absl::string_view name() const override { return inner_->name(); }
  MemorySpace kernel_space() const override { return inner_->kernel_space(); }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return inner_->staging(); }
  FailingDevice& device(int i) {
    return static_cast<FailingDevice&>(*devices_[i]);
  }

 private:
  const WildKernel wild_;
  const std::unique_ptr<Backend> inner_;
  std::vector<std::unique_ptr<Device>> devices_;
};

// Skips with fewer than two devices; with GEMMD_REQUIRE_GPU=1 it fails with
// none.
TEST(CudaDeviceLossTest, OneOfTwoFailsUnderItsWorkAndTheServerEnds) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  const char* const required = std::getenv("GEMMD_REQUIRE_GPU");
  if (devices == 0 && required != nullptr &&
      std::string_view(required) == "1") {
    FAIL() << "GEMMD_REQUIRE_GPU=1, and there is no CUDA device";
  }
  if (devices < 2) GTEST_SKIP() << "there are " << devices << " CUDA devices";

  ServerOptions options = testing::TestOptions();
  options.backend = "cuda";
  options.devices = {0, 1};
  options.matrix_store_bytes = size_t{1} << 30;
  FailingBackend* backend = nullptr;
  RunningServer server(
      options,
      [&](const BackendOptions& given, const KernelRegistry& registry)
          -> absl::StatusOr<std::unique_ptr<Backend>> {
        auto cuda = CreateCudaBackend(given, registry);
        if (!cuda.ok()) return cuda.status();
        auto failing = std::make_unique<FailingBackend>(*std::move(cuda));
        backend = failing.get();
        return failing;
      });
  const auto multiply = [&] {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    const v1::SgemmRequest request = RandomRequest(64, 64, 64, 1);
    const grpc::Status status =
        server.gemm().Sgemm(&context, request, &response);
    if (status.ok()) {
      EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
    }
    return FromGrpcStatus(status);
  };
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(multiply().ok());

  backend->device(kLost).FailFromNowOn();
  std::atomic<int> ok{8};
  constexpr int kClients = 32;
  std::vector<std::future<absl::Status>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::async(std::launch::async, [&] {
      while (true) {
        absl::Status status = multiply();
        if (!status.ok()) return status;
        ++ok;
      }
    }));
  }
  server->Wait();  // it ends without having been asked to
  int faults = 0;
  int turned_away = 0;
  for (auto& client : clients) {
    const absl::Status status = client.get();
    if (absl::IsInternal(status)) {
      ++faults;
      EXPECT_EQ(ErrorReason(status), "DEVICE_FAULT");
      EXPECT_THAT(std::string(status.message()),
                  Not(::testing::HasSubstr("cuda")));
    } else {
      ++turned_away;
      EXPECT_TRUE(absl::IsUnavailable(status)) << status;
      EXPECT_TRUE(RetryDelay(status).has_value());
    }
  }
  std::printf("%d answered, %d failed with the device, %d turned away\n",
              ok.load(), faults, turned_away);
  EXPECT_GE(faults, 1);

  EXPECT_EQ(testing::HttpGet(server->http_port(), "/readyz").status, 503);
  EXPECT_EQ(server.Metrics().Value("gemmd_device_up{device=\"1\"}"), 0);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(server.health().Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(),
            grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  const auto calls = server.SettledCalls("gemmd.v1.GemmService/Sgemm\"");
  EXPECT_EQ(calls.started, ok + kClients);
  EXPECT_EQ(calls.completed, ok + kClients);
  EXPECT_TRUE(Eventually([&] { return backend->staging().used_bytes() == 0; }));
  // What the program makes its exit code from.
  EXPECT_FALSE(server->Shutdown().ok());
}

}  // namespace
}  // namespace gemmd
