#include "server/observe/metrics.h"

#include <atomic>
#include <cmath>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/observe/build_info.h"
#include "tests/support/exposition.h"

namespace gemmd {
namespace {

using testing::Exposition;
using testing::ParseExposition;

class FakeKernel : public SgemmKernel {
 public:
  explicit FakeKernel(KernelInfo info) : SgemmKernel(std::move(info)) {}
  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }
  size_t WorkspaceBytes(std::span<const SgemmArgs>) const override { return 0; }
  absl::Status Launch(std::span<const SgemmArgs>,
                      const LaunchContext&) const override {
    return absl::OkStatus();
  }
};

// "fused" takes several products in a launch, "single" one; "absent" cannot run
// here.
KernelRegistry MakeRegistry() {
  std::vector<KernelEntry> entries;
  for (const bool fused : {true, false}) {
    KernelInfo info{.name = fused ? "fused" : "single",
                    .batch_invariant = true,
                    .fusion = fused ? Fusion::kAnyShapes : Fusion::kNone};
    entries.push_back({info, std::make_unique<FakeKernel>(info), ""});
  }
  entries.push_back({KernelInfo{.name = "absent"}, nullptr, "no device"});
  return KernelRegistry(std::move(entries));
}

class MetricsTest : public ::testing::Test {
 protected:
  Exposition Scrape() const { return ParseExposition(metrics_.Render()); }
  Batch BatchOf(int kernel, FlushReason reason) const {
    Batch batch;
    batch.kernel = registry_.entries()[kernel].kernel.get();
    batch.fused = batch.kernel->info().fusion != Fusion::kNone;
    batch.reason = reason;
    return batch;
  }

  const KernelRegistry registry_ = MakeRegistry();
  Metrics metrics_{true, registry_};
};

TEST_F(MetricsTest, RendersWellFormedTextBeforeAndAfterRecording) {
  EXPECT_THAT(Scrape().problems, ::testing::IsEmpty());
  for (int method = 0; method < kMethodCount; ++method) {
    metrics_.CallStarted(static_cast<Method>(method));
    metrics_.CallCompleted(static_cast<Method>(method), grpc::OK, 0.003);
    metrics_.MessageSizes(static_cast<Method>(method), 1 << 20, 100);
  }
  for (int stage = 0; stage < kStageCount; ++stage) {
    metrics_.StageDone(static_cast<Stage>(stage), 1e9);  // beyond all buckets
  }
  metrics_.Problem(0);
  metrics_.SetDevice({.index = 0, .name = "A \"name\"\\ with\nall"}, true);
  EXPECT_THAT(Scrape().problems, ::testing::IsEmpty());
}

TEST_F(MetricsTest, SeriesExistAtZeroAndStayInBudget) {
  metrics_.SetDevice({.index = 0, .name = "device"}, true);
  const Exposition scrape = Scrape();
  EXPECT_EQ(scrape.Value("grpc_server_call_completed_total{grpc_method=\"gemmd."
                         "v1.GemmService/Sgemm\",grpc_status=\"CANCELLED\"}"),
            0);
  EXPECT_EQ(scrape.Value("gemmd_queue_depth"), 0);
  EXPECT_EQ(scrape.Value("gemmd_inflight_requests"), 0);
  EXPECT_EQ(scrape.Value("gemmd_requests_shed_total{reason=\"draining\"}"), 0);
  EXPECT_EQ(scrape.Value("gemmd_flops_total{kernel=\"single\"}"), 0);
  EXPECT_TRUE(std::isnan(scrape.Value("gemmd_flops_total{kernel=\"absent\"}")));
  // 16 kernels and 8 devices add 16 * 15 and 8 * 10 to what is here.
  EXPECT_LT(scrape.samples.size(), 1500 - 14 * 15 - 7 * 10);
}

TEST_F(MetricsTest, CallsCountOnceByMethodAndCode) {
  metrics_.CallStarted(Method::kSgemm);
  metrics_.CallStarted(Method::kSgemm);
  metrics_.CallStarted(Method::kGetServerInfo);
  metrics_.CallCompleted(Method::kSgemm, grpc::StatusCode::UNAVAILABLE, 0.25);
  metrics_.CallCompleted(Method::kSgemm, static_cast<grpc::StatusCode>(99), 1);
  const Exposition scrape = Scrape();
  const std::string sgemm = "grpc_method=\"gemmd.v1.GemmService/Sgemm\"";
  EXPECT_EQ(scrape.Sum("grpc_server_call_started_total"), 3);
  EXPECT_EQ(scrape.Value("grpc_server_call_started_total{" + sgemm + "}"), 2);
  EXPECT_EQ(scrape.Sum("grpc_server_call_completed_total"), 2);
  EXPECT_EQ(scrape.Value("grpc_server_call_completed_total{" + sgemm +
                         ",grpc_status=\"UNAVAILABLE\"}"),
            1);
  EXPECT_EQ(scrape.Value("grpc_server_call_completed_total{" + sgemm +
                         ",grpc_status=\"UNKNOWN\"}"),
            1);
  EXPECT_EQ(
      scrape.Value("grpc_server_call_duration_seconds_sum{" + sgemm + "}"),
      1.25);
}

TEST_F(MetricsTest, EveryMethodStageAndReasonHasItsOwnSeries) {
  std::set<absl::string_view> names;
  for (int method = 0; method < kMethodCount; ++method) {
    names.insert(MethodName(static_cast<Method>(method)));
    metrics_.CallStarted(static_cast<Method>(method));
  }
  EXPECT_EQ(names.size(), kMethodCount);
  metrics_.StageDone(Stage::kH2d, 1);
  metrics_.Shed(ShedReason::kTooLarge);
  const Exposition scrape = Scrape();
  for (const absl::string_view name : names) {
    EXPECT_EQ(
        scrape.Value(absl::StrCat(
            "grpc_server_call_started_total{grpc_method=\"", name, "\"}")),
        1)
        << name;
  }
  EXPECT_EQ(
      scrape.Value("gemmd_request_stage_duration_seconds_count{stage=\"h2d\"}"),
      1);
  EXPECT_EQ(scrape.Sum("gemmd_request_stage_duration_seconds_count"), 1);
  EXPECT_EQ(scrape.Value("gemmd_requests_shed_total{reason=\"too_large\"}"), 1);
}

TEST_F(MetricsTest, OnlyAFusedBatchIsOneLaunch) {
  const BatchReport report{.tasks = 4,
                           .seconds = {.compute = 0.5},
                           .flops = 1e6,
                           .h2d_bytes = 100,
                           .d2h_bytes = 10};
  metrics_.OnBatch(BatchOf(0, FlushReason::kFull), report);
  metrics_.OnBatch(BatchOf(1, FlushReason::kTimer), report);
  metrics_.OnBatch(BatchOf(1, FlushReason::kDrain), {.tasks = 0});
  const Exposition scrape = Scrape();
  const auto value = [&](const char* name, const char* label) {
    return scrape.Value(std::string(name) + "{" + label + "}");
  };
  EXPECT_EQ(value("gemmd_kernel_launches_total", "kernel=\"fused\""), 1);
  EXPECT_EQ(value("gemmd_kernel_launches_total", "kernel=\"single\""), 4);
  EXPECT_EQ(value("gemmd_batch_size_count", "kernel=\"single\""), 1);
  EXPECT_EQ(value("gemmd_batch_size_sum", "kernel=\"single\""), 4);
  EXPECT_EQ(scrape.Sum("gemmd_flops_total"), 2e6);
  EXPECT_EQ(scrape.Sum("gemmd_kernel_busy_seconds_total"), 1);
  EXPECT_EQ(value("gemmd_transfer_bytes_total", "direction=\"h2d\""), 200);
  EXPECT_EQ(value("gemmd_transfer_bytes_total", "direction=\"d2h\""), 20);
  EXPECT_EQ(value("gemmd_batch_flush_total", "reason=\"full\""), 1);
  EXPECT_EQ(value("gemmd_batch_flush_total", "reason=\"timer\""), 1);
  EXPECT_EQ(value("gemmd_batch_flush_total", "reason=\"idle\""), 0);
  EXPECT_EQ(value("gemmd_batch_flush_total", "reason=\"drain\""), 1);
}

TEST_F(MetricsTest, ADeviceFaultTurnsTheDeviceDown) {
  metrics_.SetDevice({.index = 3, .name = "gpu", .streams = 4}, true);
  EXPECT_EQ(Scrape().Value("gemmd_device_up{device=\"3\"}"), 1);
  const std::string sticky = "gemmd_device_errors_total{class=\"sticky\"}";
  EXPECT_EQ(Scrape().Value(sticky), 0);
  EXPECT_EQ(Scrape().Value("gemmd_streams{device=\"3\"}"), 4);
  metrics_.OnDeviceFault(3, absl::InternalError("gone"));
  EXPECT_EQ(Scrape().Value("gemmd_device_up{device=\"3\"}"), 0);
  EXPECT_EQ(Scrape().Value(sticky), 1);
}

TEST_F(MetricsTest, AFailedLaunchIsCountedByItsKind) {
  metrics_.OnBatch(BatchOf(0, FlushReason::kIdle),
                   {.launch_status = absl::ResourceExhaustedError("memory")});
  metrics_.OnBatch(BatchOf(0, FlushReason::kIdle),
                   {.launch_status = absl::InternalError("launch")});
  metrics_.OnBatch(BatchOf(0, FlushReason::kIdle), {.tasks = 1});
  const Exposition scrape = Scrape();
  EXPECT_EQ(scrape.Value("gemmd_device_errors_total{class=\"memory\"}"), 1);
  EXPECT_EQ(scrape.Value("gemmd_device_errors_total{class=\"launch\"}"), 1);
  EXPECT_EQ(scrape.Sum("gemmd_device_errors_total"), 2);
}

TEST_F(MetricsTest, TellsOfReadinessStreamsAndWhatADeviceCanDo) {
  metrics_.SetDevice({.index = 1,
                      .name = "gpu",
                      .streams = 4,
                      .peak_flops = 67e12,
                      .uuid = "GPU-1"},
                     true);
  metrics_.SetDevice({.index = 0, .name = "unknown"}, true);
  EXPECT_EQ(Scrape().Value("gemmd_ready"), 0);
  metrics_.SetReady(true);
  metrics_.OnStreams(1, 1);
  metrics_.OnStreams(1, 1);
  metrics_.OnStreams(1, -1);
  const Exposition scrape = Scrape();
  EXPECT_EQ(scrape.Value("gemmd_ready"), 1);
  EXPECT_EQ(scrape.Value("gemmd_streams_busy{device=\"1\"}"), 1);
  EXPECT_EQ(scrape.Value("gemmd_streams_busy{device=\"0\"}"), 0);
  EXPECT_EQ(scrape.Value("gemmd_device_peak_flops{device=\"1\"}"), 67e12);
  EXPECT_TRUE(
      std::isnan(scrape.Value("gemmd_device_peak_flops{device=\"0\"}")));
  EXPECT_EQ(scrape.Sum("gemmd_device_info", "uuid=\"GPU-1\""), 1);
}

TEST_F(MetricsTest, TellsOfTheProcessAndItsBuild) {
  const Exposition scrape = Scrape();
  EXPECT_GT(scrape.Value("process_resident_memory_bytes"), 1e6);
  EXPECT_GT(scrape.Value("process_open_fds"), 2);
  EXPECT_GT(scrape.Value("process_start_time_seconds"), 1.5e9);
  EXPECT_GE(scrape.Value("process_cpu_seconds_total"), 0);
  EXPECT_EQ(scrape.Sum("gemmd_build_info", std::string(BuildVersion())), 1);
}

TEST_F(MetricsTest, LosesNothingRecordedByManyThreadsDuringScrapes) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 20'000;
  std::atomic<bool> done{false};
  std::thread scraper([&] {
    while (!done.load()) EXPECT_THAT(Scrape().problems, ::testing::IsEmpty());
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) {
        metrics_.CallStarted(Method::kSgemm);
        metrics_.CallCompleted(Method::kSgemm, grpc::OK, 1e-3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  scraper.join();
  EXPECT_EQ(Scrape().Sum("grpc_server_call_started_total"), kThreads * kCalls);
  EXPECT_EQ(Scrape().Sum("grpc_server_call_completed_total"),
            kThreads * kCalls);
  EXPECT_EQ(Scrape().Sum("grpc_server_call_duration_seconds_count"),
            kThreads * kCalls);
}

TEST(DisabledMetricsTest, EveryCallIsANoOp) {
  const KernelRegistry registry = MakeRegistry();
  Metrics metrics(false, registry);
  metrics.CallStarted(Method::kSgemm);
  metrics.CallCompleted(Method::kSgemm, grpc::OK, 1);
  metrics.StageDone(Stage::kQueue, 1);
  metrics.OnBatch({}, {});
  metrics.OnDeviceFault(0, absl::InternalError("gone"));
  EXPECT_FALSE(metrics.enabled());
  EXPECT_EQ(metrics.Render(), "");
}

TEST(ExpositionTest, FindsWhatBreaksTheFormat) {
  const auto problems = [](const char* text) {
    return ParseExposition(text).problems.size();
  };
  const std::string head = "# HELP a_total h\n# TYPE a_total counter\n";
  EXPECT_EQ(problems((head + "a_total 1\n").c_str()), 0);
  EXPECT_NE(problems((head + "a_total 1").c_str()), 0);
  EXPECT_NE(problems((head + "a_total x\n").c_str()), 0);
  EXPECT_NE(problems((head + "a_total 1\na_total 2\n").c_str()), 0);
  EXPECT_NE(problems("b 1\n"), 0);
  EXPECT_NE(problems("# HELP a h\n# TYPE a counter\na 1\n"), 0);
  EXPECT_NE(problems("# HELP h h\n# TYPE h histogram\n"
                     "h_count 2\nh_sum 1\nh_bucket{le=\"1\"} 2\n"
                     "h_bucket{le=\"+Inf\"} 1\n"),
            0);
}

}  // namespace
}  // namespace gemmd
