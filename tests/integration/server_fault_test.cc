// A device that fails under load: the answers, the health, the end.

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_details.h"
#include "server/observe/logging.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::RandomRequest;
using testing::RunningServer;

// A device that works until told to fail, and fails every batch from then on as
// one with a sticky error does.
class FailingDevice : public Device {
 public:
  FailingDevice(Device* inner, const std::atomic<bool>* fail)
      : inner_(inner), fail_(fail) {}
  ~FailingDevice() override {
    for (std::thread& thread : threads_) thread.join();
  }

  const DeviceInfo& info() const override { return inner_->info(); }
  absl::Status Warm() override { return inner_->Warm(); }

  void Execute(Batch batch, BatchDone done) override {
    if (!fail_->load()) {
      inner_->Execute(std::move(batch), std::move(done));
      return;
    }
    threads_.emplace_back(
        [batch = std::move(batch), done = std::move(done)]() mutable {
          const absl::Status fault =
              FaultError("DEVICE_FAULT", "device 0 failed", {});
          for (const auto& task : batch.tasks) {
            if (task->Start()) task->Finish(fault, {}, 0, 1);
          }
          std::move(done)({.status = absl::InternalError("sticky error 700")});
        });
  }

 private:
  Device* const inner_;
  const std::atomic<bool>* const fail_;
  // Execute is called by one batch at a time: the device has one stream.
  std::vector<std::thread> threads_;
};

// The CPU's backend with another device around its own.
class WrappedBackend : public Backend {
 public:
  WrappedBackend(std::unique_ptr<Backend> inner, std::unique_ptr<Device> device)
      : inner_(std::move(inner)) {
    devices_.push_back(std::move(device));
  }

  absl::string_view name() const override { return inner_->name(); }
  MemorySpace kernel_space() const override { return inner_->kernel_space(); }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return inner_->staging(); }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<std::unique_ptr<Device>> devices_;
};

template <typename T, typename... Arguments>
absl::StatusOr<std::unique_ptr<Backend>> WithDevice(
    const BackendOptions& options, const KernelRegistry& registry,
    Arguments... arguments) {
  auto inner = CreateBackend(options, registry);
  if (!inner.ok()) return inner.status();
  auto device = std::make_unique<T>((*inner)->devices()[0].get(), arguments...);
  return std::make_unique<WrappedBackend>(*std::move(inner), std::move(device));
}

TEST(ServerFaultTest, AFailedDeviceFailsItsWorkTurnsHealthAndEndsTheServer) {
  std::atomic<bool> fail{false};
  ServerOptions options = testing::TestOptions();
  options.streams_per_device = 1;
  RunningServer server(options, [&fail](const BackendOptions& o,
                                        const KernelRegistry& registry) {
    return WithDevice<FailingDevice>(o, registry, &fail);
  });
  const auto multiply = [&server] {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    return server.gemm().Sgemm(&context, RandomRequest(4, 4, 4, 1), &response);
  };
  EXPECT_TRUE(multiply().ok());
  EXPECT_EQ(server.Metrics().Value("gemmd_device_up{device=\"0\"}"), 1);

  fail.store(true);
  const grpc::Status failed = multiply();
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(failed.error_message(), Not(HasSubstr("700")));
  server->Wait();  // without having been asked to stop

  EXPECT_TRUE(Eventually([&] {
    return testing::HttpGet(server->http_port(), "/readyz").status == 503;
  }));
  EXPECT_THAT(testing::HttpGet(server->http_port(), "/readyz").body,
              HasSubstr("a device has failed"));
  EXPECT_EQ(server.Metrics().Value("gemmd_device_up{device=\"0\"}"), 0);
  EXPECT_EQ(
      server.Metrics().Value("gemmd_device_errors_total{class=\"sticky\"}"), 1);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(server.health().Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(),
            grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  // Later work is refused where the client can go elsewhere.
  EXPECT_EQ(multiply().error_code(), grpc::StatusCode::UNAVAILABLE);
  const absl::Status ended = server->Shutdown();
  EXPECT_EQ(ended.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(server->Shutdown(), ended);
}

// A device whose kernels' launches fail, which it survives.
class FailingLaunchDevice : public Device {
 public:
  explicit FailingLaunchDevice(Device* inner) : inner_(inner) {}
  const DeviceInfo& info() const override { return inner_->info(); }
  absl::Status Warm() override { return inner_->Warm(); }

  // One product, from one client: there is no batch before it to wait for.
  void Execute(Batch batch, BatchDone done) override {
    thread_ = std::jthread(
        [batch = std::move(batch), done = std::move(done)]() mutable {
          for (const auto& task : batch.tasks) {
            if (!task->Start()) continue;
            task->Finish(FaultError("KERNEL_FAULT", "the kernel failed", {}),
                         {}, 0, 1);
          }
          std::move(done)(
              {.launch_status = absl::InternalError("cublasSgemm gave 13")});
        });
  }

 private:
  Device* const inner_;
  std::jthread thread_;
};

TEST(ServerFaultTest, WhyALaunchFailedIsInTheLogAndNotInTheAnswer) {
  ::testing::internal::CaptureStderr();
  RunningServer server(
      testing::TestOptions(),
      [](const BackendOptions& o, const KernelRegistry& registry) {
        return WithDevice<FailingLaunchDevice>(o, registry);
      });
  grpc::ClientContext context;
  v1::SgemmResponse response;
  const grpc::Status failed =
      server.gemm().Sgemm(&context, RandomRequest(4, 4, 4, 1), &response);
  EXPECT_EQ(failed.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(failed.error_message(), Not(HasSubstr("cublas")));
  EXPECT_TRUE(server->Shutdown().ok());
  EXPECT_TRUE(FlushLog());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("launch failed kernel=openblas device=0 "
                        "error=\"cublasSgemm gave 13\"\n"));
}

TEST(ServerFaultTest, ADeviceFaultCutsTheDrainDelayShort) {
  std::atomic<bool> fail{false};
  ServerOptions options = testing::TestOptions();
  options.streams_per_device = 1;
  options.drain_delay = absl::Hours(1);
  RunningServer server(options, [&fail](const BackendOptions& o,
                                        const KernelRegistry& registry) {
    return WithDevice<FailingDevice>(o, registry, &fail);
  });
  auto stopped =
      std::async(std::launch::async, [&server] { return server->Shutdown(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout);
  fail.store(true);
  grpc::ClientContext context;
  v1::SgemmResponse response;
  EXPECT_FALSE(
      server.gemm().Sgemm(&context, RandomRequest(4, 4, 4, 1), &response).ok());
  ASSERT_EQ(stopped.wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  EXPECT_FALSE(stopped.get().ok());
}

TEST(ServerFaultTest, ABackendThatCannotBeHadIsTheErrorOfStart) {
  const auto server = Server::Start(
      testing::TestOptions(),
      [](const BackendOptions&,
         const KernelRegistry&) -> absl::StatusOr<std::unique_ptr<Backend>> {
        return absl::FailedPreconditionError("no driver");
      });
  EXPECT_EQ(server.status(), absl::FailedPreconditionError("no driver"));
}

}  // namespace
}  // namespace gemmd
