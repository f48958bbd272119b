// Devices that fail in every way, under a whole server: the answers, the
// health, the accounts and the end.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/error_details.h"
#include "proto/status.h"
#include "server/observe/logging.h"
#include "tests/integration/running_server.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::Eventually;
using testing::Fault;
using testing::FaultyBackend;
using testing::FaultyDevice;
using ::testing::HasSubstr;
using testing::RandomRequest;
using testing::RunningServer;

constexpr char kSgemm[] = "gemmd.v1.GemmService/Sgemm\"";

class ServerFaultTest : public ::testing::TestWithParam<Fault> {
 protected:
  ServerFaultTest() {
    options_.streams_per_device = 1;
    options_.drain_timeout = absl::Seconds(20);
  }
  ~ServerFaultTest() override {
    if (backend_ != nullptr) ReleaseAll();
  }

  void Start(int devices = 1) {
    server_.emplace(
        options_,
        [&](const BackendOptions& options, const KernelRegistry& registry)
            -> absl::StatusOr<std::unique_ptr<Backend>> {
          auto backend = FaultyBackend::Create(options, registry, devices);
          if (!backend.ok()) return backend.status();
          backend_ = backend->get();
          devices_ = devices;
          return *std::move(backend);
        });
  }

  FaultyDevice& device(int i = 0) { return backend_->device(i); }
  void ReleaseAll() {
    for (int i = 0; i < devices_; ++i) device(i).Release();
  }

  absl::Status Multiply(std::optional<std::chrono::milliseconds> timeout = {},
                        grpc::ClientContext* given = nullptr) {
    grpc::ClientContext own;
    grpc::ClientContext* const context = given != nullptr ? given : &own;
    if (timeout.has_value()) {
      context->set_deadline(std::chrono::system_clock::now() + *timeout);
    }
    v1::SgemmResponse response;
    const v1::SgemmRequest request = RandomRequest(4, 4, 4, 1);
    const grpc::Status status =
        server_->gemm().Sgemm(context, request, &response);
    if (status.ok()) {
      EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
    }
    return FromGrpcStatus(status);
  }

  std::future<absl::Status> MultiplyLater() {
    return std::async(std::launch::async, [this] { return Multiply(); });
  }

  // Keeps device 0 busy with a product, until Release.
  std::future<absl::Status> Occupy() {
    device().Set(Fault::kStuck);
    std::future<absl::Status> busy = MultiplyLater();
    EXPECT_TRUE(Eventually([&] { return device().running() == 1; }));
    return busy;
  }

  // Of resident matrices of 2 x 2.
  absl::Status Upload(const std::string& id) {
    grpc::ClientContext context;
    v1::UploadMatrixResponse response;
    auto writer = server_->gemm().UploadMatrix(&context, &response);
    v1::UploadMatrixRequest request;
    request.mutable_header()->set_matrix_id(id);
    request.mutable_header()->set_rows(2);
    request.mutable_header()->set_cols(2);
    writer->Write(request);
    request.set_chunk(std::string(16, '\0'));
    writer->Write(request);
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  }
  absl::Status Download(const std::string& id) {
    grpc::ClientContext context;
    v1::DownloadMatrixRequest request;
    request.set_matrix_id(id);
    auto reader = server_->gemm().DownloadMatrix(&context, request);
    v1::DownloadMatrixResponse response;
    while (reader->Read(&response)) {
    }
    return FromGrpcStatus(reader->Finish());
  }
  absl::Status MultiplyResident(const std::string& a, const std::string& b) {
    grpc::ClientContext context;
    v1::SgemmRequest request;
    request.mutable_a()->set_matrix_id(a);
    request.mutable_b()->set_matrix_id(b);
    for (v1::Operand* x : {request.mutable_a(), request.mutable_b()}) {
      x->set_rows(2);
      x->set_cols(2);
    }
    v1::SgemmResponse response;
    return FromGrpcStatus(server_->gemm().Sgemm(&context, request, &response));
  }

  // The end of the server and, unless a device is stuck, of its backend.
  absl::Status End() {
    absl::Status status = (*server_)->Shutdown();
    backend_ = nullptr;
    return status;
  }

  double Gauge(const char* name) { return server_->Metrics().Value(name); }

  // I1 and no leak: as many ends as beginnings, and nothing held.
  void ExpectAllEnded(double calls) {
    const auto settled = server_->SettledCalls(kSgemm);
    EXPECT_EQ(settled.started, calls);
    EXPECT_EQ(settled.completed, calls);
    EXPECT_TRUE(Eventually([&] {
      return backend_->staging().used_bytes() == 0;
    })) << backend_->staging().used_bytes();
    EXPECT_EQ(Gauge("gemmd_inflight_requests"), 0);
    EXPECT_EQ(Gauge("gemmd_queue_depth"), 0);
    EXPECT_EQ(Gauge("gemmd_queue_bytes"), 0);
  }

  ServerOptions options_ = testing::TestOptions();
  FaultyBackend* backend_ = nullptr;
  int devices_ = 0;
  std::optional<RunningServer> server_;
};

// A sticky error, at each of its stages.
class ServerLosesADevice : public ServerFaultTest {};

INSTANTIATE_TEST_SUITE_P(AtEveryStage, ServerLosesADevice,
                         ::testing::Values(Fault::kLostBeforeStart,
                                           Fault::kLostAtStart,
                                           Fault::kLostMidway));

TEST_P(ServerLosesADevice, ItsWorkFailsHealthTurnsAndTheServerEnds) {
  Start();
  EXPECT_TRUE(Multiply().ok());
  EXPECT_EQ(Gauge("gemmd_device_up{device=\"0\"}"), 1);
  auto busy = Occupy();
  std::vector<std::future<absl::Status>> batch;
  for (int i = 0; i < 4; ++i) batch.push_back(MultiplyLater());
  ASSERT_TRUE(Eventually([&] { return Gauge("gemmd_queue_depth") == 4; }));
  device().Set(GetParam());
  device().Release();
  EXPECT_TRUE(busy.get().ok());
  int ok = 0;
  for (auto& product : batch) {
    const absl::Status status = product.get();
    ok += status.ok();
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("700")));
    if (GetParam() == Fault::kLostBeforeStart) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_TRUE(RetryDelay(status).has_value());
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_EQ(ErrorReason(status), "DEVICE_FAULT");
    }
  }
  EXPECT_EQ(ok, GetParam() == Fault::kLostMidway ? 2 : 0);
  (*server_)->Wait();  // without having been asked to stop

  const int http = (*server_)->http_port();
  EXPECT_EQ(testing::HttpGet(http, "/readyz").status, 503);
  EXPECT_THAT(testing::HttpGet(http, "/readyz").body,
              HasSubstr("a device has failed"));
  EXPECT_EQ(Gauge("gemmd_device_up{device=\"0\"}"), 0);
  EXPECT_EQ(server_->Metrics().Sum("gemmd_device_errors_total"), 1);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  ASSERT_TRUE(server_->health().Check(&context, {}, &health).ok());
  EXPECT_EQ(health.status(),
            grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  // Later work is refused where the client can go elsewhere.
  EXPECT_EQ(Multiply().code(), absl::StatusCode::kUnavailable);
  ExpectAllEnded(7);
  const absl::Status ended = End();
  EXPECT_EQ(ended.code(), absl::StatusCode::kInternal);
  EXPECT_EQ((*server_)->Shutdown(), ended);
}

TEST_F(ServerFaultTest, OutOfDeviceMemoryFailsThatRequestAlone) {
  Start();
  device().Set(Fault::kOutOfMemory);
  const absl::Status full = Multiply();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(QuotaSubject(full), "device-memory");
  EXPECT_TRUE(RetryDelay(full).has_value());
  device().Set(Fault::kNone);
  EXPECT_TRUE(Multiply().ok());
  EXPECT_EQ(testing::HttpGet((*server_)->http_port(), "/readyz").status, 200);
  ExpectAllEnded(2);
  EXPECT_TRUE(End().ok());
}

TEST_F(ServerFaultTest, WhyALaunchFailedIsInTheLogAndNotInTheAnswer) {
  ::testing::internal::CaptureStderr();
  Start();
  device().Set(Fault::kLaunchFailure);
  const absl::Status failed = Multiply();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ErrorReason(failed), "KERNEL_FAULT");
  EXPECT_THAT(std::string(failed.message()), Not(HasSubstr("error 1")));
  device().Set(Fault::kNone);
  EXPECT_TRUE(Multiply().ok()) << "the device survives it";
  ExpectAllEnded(2);
  EXPECT_TRUE(End().ok());
  EXPECT_TRUE(FlushLog());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("launch failed kernel=openblas device=0 "
                        "error=\"error 1 of a launch\"\n"));
}

TEST_F(ServerFaultTest, AStuckDeviceIsGivenUpAndTheServerEnds) {
  options_.device_timeout = absl::Milliseconds(300);
  Start();
  auto stuck = Occupy();
  auto queued = MultiplyLater();
  (*server_)->Wait();
  const absl::Status failed = stuck.get();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ErrorReason(failed), "DEVICE_STUCK");
  EXPECT_EQ(queued.get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(testing::HttpGet((*server_)->http_port(), "/readyz").status, 503);
  const auto calls = server_->SettledCalls(kSgemm);
  EXPECT_EQ(calls.completed, 2);
  EXPECT_GT(backend_->staging().used_bytes(), 0u)
      << "the device may still write to it";
  // The end does not wait for the device, nor take away what it uses.
  EXPECT_EQ((*server_)->Shutdown().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(device().running(), 1);
}

// An upload, a download, and a product that waits for a copy to its device.
TEST_F(ServerFaultTest, ACopyThatIsStuckDoesNotHoldUpTheEnd) {
  options_.device_timeout = absl::Milliseconds(300);
  options_.drain_timeout = absl::Milliseconds(500);
  const std::function<absl::Status()> held[] = {
      [this] { return Upload("z"); },
      [this] { return Download("x"); },
      [this] { return MultiplyResident("x", "y"); },
  };
  for (const auto& call : held) {
    Start(/*devices=*/2);
    ASSERT_TRUE(Upload("x").ok());  // on one device
    ASSERT_TRUE(Upload("y").ok());  // on the other
    for (int i = 0; i < devices_; ++i) device(i).Set(Fault::kStuckCopies);
    auto stuck = std::async(std::launch::async, call);
    ASSERT_TRUE(Eventually([&] {
      return device(0).stuck_copies() + device(1).stuck_copies() > 0;
    }));
    (*server_)->Wait();  // without having been asked to stop
    EXPECT_EQ((*server_)->Shutdown().code(), absl::StatusCode::kInternal);
    EXPECT_FALSE(stuck.get().ok());
    ReleaseAll();
    server_.reset();  // waits for what was stuck
  }
  backend_ = nullptr;
}

TEST_F(ServerFaultTest, OneLostDeviceOfTwoLetsTheOtherFinish) {
  Start(/*devices=*/2);
  auto first = Occupy();  // on device 0
  device(1).Set(Fault::kStuck);
  auto second = MultiplyLater();
  ASSERT_TRUE(Eventually([&] { return device(1).running() == 1; }));
  auto third = MultiplyLater();
  ASSERT_TRUE(Eventually([&] { return Gauge("gemmd_queue_depth") == 1; }));
  device(0).Set(Fault::kLostAtStart);
  device(0).Release();
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(third.get().code(), absl::StatusCode::kInternal);
  (*server_)->Wait();
  device(1).Release();
  EXPECT_TRUE(second.get().ok());
  ExpectAllEnded(3);
  EXPECT_FALSE(End().ok());
}

TEST_F(ServerFaultTest, ADeviceFaultCutsTheDrainDelayShort) {
  options_.drain_delay = absl::Hours(1);
  Start();
  auto stopped = std::async(std::launch::async, [this] { return End(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout);
  device().Set(Fault::kLostAtStart);
  EXPECT_FALSE(Multiply().ok());
  ASSERT_EQ(stopped.wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  EXPECT_FALSE(stopped.get().ok());
}

// A deadline and a cancellation while a product waits, and while it runs.
TEST_F(ServerFaultTest, WhoGivesUpIsAnsweredWhateverTheDeviceDoes) {
  Start();
  for (const bool cancel : {false, true}) {
    const auto give_up = [&] {
      grpc::ClientContext context;
      if (!cancel) return Multiply(std::chrono::milliseconds(150), &context);
      std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        context.TryCancel();
      });
      absl::Status status = Multiply({}, &context);
      canceller.join();
      return status;
    };
    device().Set(Fault::kStuck);
    const absl::Status running = give_up();
    const absl::Status waiting = give_up();
    EXPECT_EQ(device().running(), 1) << "the one that waited was not run";
    for (const absl::Status& status : {running, waiting}) {
      EXPECT_EQ(status.code(), cancel ? absl::StatusCode::kCancelled
                                      : absl::StatusCode::kDeadlineExceeded);
    }
    device().Release();
  }
  EXPECT_TRUE(Multiply().ok());
  ExpectAllEnded(5);
}

// A drain that is asked for while products wait, begin slowly, run and fail.
TEST_F(ServerFaultTest, ADrainAtAnyMomentAnswersEverybody) {
  for (const Fault fault : {Fault::kNone, Fault::kSlow, Fault::kOutOfMemory,
                            Fault::kLaunchFailure, Fault::kLostMidway}) {
    for (const int delay_ms : {0, 5, 25}) {
      options_.drain_timeout = absl::Milliseconds(delay_ms * 4);
      Start();
      device().Set(fault);
      std::vector<std::future<absl::Status>> products;
      for (int i = 0; i < 8; ++i) products.push_back(MultiplyLater());
      std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
      End().IgnoreError();
      for (auto& product : products) {
        ASSERT_EQ(product.wait_for(std::chrono::seconds(20)),
                  std::future_status::ready);
        product.get().IgnoreError();
      }
      server_.reset();
    }
  }
}

// Ten times what the server may hold, all at once: each gets one answer, and
// those that are turned away are told when to come back.
TEST_F(ServerFaultTest, ABurstOfTenTimesTheQueueIsAnsweredOneByOne) {
  constexpr int kHeld = 20;
  options_.queue_max_requests = kHeld;
  Start();
  device().Set(Fault::kSlow);
  std::atomic<int> ok{0}, refused{0}, other{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 10 * kHeld; ++i) {
    clients.emplace_back([&] {
      const absl::Status status = Multiply();
      if (status.ok()) {
        ++ok;
      } else if (absl::IsResourceExhausted(status)) {
        ++refused;
        EXPECT_EQ(QuotaSubject(status), "queue-max-requests");
        EXPECT_TRUE(RetryDelay(status).has_value());
      } else {
        ++other;
        ADD_FAILURE() << status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ok + refused + other, 10 * kHeld);
  EXPECT_GE(ok, 1);
  EXPECT_GE(refused, 1);
  EXPECT_EQ(server_->Metrics().Sum("gemmd_requests_shed_total"), refused);
  ExpectAllEnded(10 * kHeld);
}

TEST(ServerStartTest, ABackendThatCannotBeHadIsTheErrorOfStart) {
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
