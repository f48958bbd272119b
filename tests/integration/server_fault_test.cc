// A device that fails under load: the answers, the health, the end.

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_details.h"
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

class FailingBackend : public Backend {
 public:
  FailingBackend(std::unique_ptr<Backend> inner, const std::atomic<bool>* fail)
      : inner_(std::move(inner)) {
    devices_.push_back(
        std::make_unique<FailingDevice>(inner_->devices()[0].get(), fail));
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

TEST(ServerFaultTest, AFailedDeviceFailsItsWorkTurnsHealthAndEndsTheServer) {
  std::atomic<bool> fail{false};
  ServerOptions options = testing::TestOptions();
  options.streams_per_device = 1;
  RunningServer server(
      options,
      [&fail](const BackendOptions& o, const KernelRegistry& registry)
          -> absl::StatusOr<std::unique_ptr<Backend>> {
        auto inner = CreateBackend(o, registry);
        if (!inner.ok()) return inner.status();
        return std::make_unique<FailingBackend>(*std::move(inner), &fail);
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
  EXPECT_EQ(server.Metrics().Value("gemmd_device_faults_total{device=\"0\"}"),
            1);
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
