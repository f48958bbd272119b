#include "server/observe/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/mutex.h"
#include "server/observe/build_info.h"
#include "server/observe/process_metrics.h"

namespace gemmd {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Buckets = Histogram::BucketBoundaries;

constexpr int kStatusCodeCount = 17;  // OK to UNAUTHENTICATED

// By code, as gRPC spells them.
constexpr std::array<const char*, kStatusCodeCount> kStatusNames = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED"};

// In the order of the enums.
constexpr std::array<const char*, kMethodCount> kMethodNames = {
    "gemmd.v1.GemmService/Sgemm",         "gemmd.v1.GemmService/SgemmStream",
    "gemmd.v1.GemmService/UploadMatrix",  "gemmd.v1.GemmService/DownloadMatrix",
    "gemmd.v1.GemmService/ListMatrices",  "gemmd.v1.GemmService/DeleteMatrix",
    "gemmd.v1.GemmService/GetServerInfo", "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/Watch"};
constexpr std::array<const char*, kStageCount> kStageNames = {
    "decode", "queue", "h2d", "compute", "d2h", "encode"};
constexpr std::array<const char*, kShedReasonCount> kShedNames = {
    "queue_full", "memory", "deadline", "draining", "too_large"};
constexpr std::array<const char*, 4> kFlushNames = {"full", "timer", "idle",
                                                    "drain"};

// 1-2-5 steps of seconds; a call's from 50 us (17), a stage's from 5 us (20).
const Buckets kCallBuckets = {5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3,
                              5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1,
                              5e-1, 1,    2,    5,    10};
const Buckets kStageBuckets = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                               1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1,
                               2e-1, 5e-1, 1,    2,    5,    10};

Buckets Exponential(double first, double factor, int count) {
  Buckets buckets;
  for (double bound = first; count > 0; --count, bound *= factor) {
    buckets.push_back(bound);
  }
  return buckets;
}

// One child of `family` for each name of a label.
template <typename T, size_t n, typename... Args>
std::array<T*, n> Children(Family<T>& family, const char* label,
                           const std::array<const char*, n>& names,
                           const Args&... args) {
  std::array<T*, n> children;
  for (size_t i = 0; i < n; ++i) {
    children[i] = &family.Add({{label, names[i]}}, args...);
  }
  return children;
}

std::string DeviceLabel(int device) { return absl::StrCat(device); }

}  // namespace

absl::string_view MethodName(Method method) {
  return kMethodNames[static_cast<int>(method)];
}

struct Metrics::Impl {
  // A kernel's series.
  struct Kernel {
    Counter* flops;
    Counter* busy_seconds;
    Counter* launches;
    Histogram* batch_size;
  };

  explicit Impl(const KernelRegistry& registry_of_kernels);

  Family<Counter>& CounterFamily(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Family<Gauge>& GaugeFamily(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
  Family<Histogram>& HistogramFamily(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(
        registry);
  }

  // Synchronises itself; first, since the rest points into it.
  prometheus::Registry registry;

  // Constant after construction; what they point to synchronises itself.
  std::array<Counter*, kMethodCount> started;
  std::array<std::array<Counter*, kStatusCodeCount>, kMethodCount> completed;
  std::array<Histogram*, kMethodCount> durations;
  std::array<Histogram*, kMethodCount> received_bytes;
  std::array<Histogram*, kMethodCount> sent_bytes;
  std::array<Histogram*, kStageCount> stages;
  std::array<Counter*, kShedReasonCount> sheds;
  std::array<Counter*, 4> flushes;
  std::array<Counter*, 2> transfers;  // h2d, d2h
  std::unordered_map<const SgemmKernel*, Kernel> kernels;
  Histogram* problem_flops;
  Gauge* queue_depth;
  Gauge* queue_bytes;
  Gauge* queue_capacity;
  Gauge* inflight;
  Family<Gauge>* device_info;
  Family<Gauge>* device_up;
  Family<Gauge>* streams;
  Family<Counter>* device_faults;

  mutable Mutex mu;
  std::vector<std::shared_ptr<prometheus::Collectable>> sources
      ABSL_GUARDED_BY(mu);

 private:
  void AddCalls();
  void AddKernels(const KernelRegistry& registry_of_kernels);
  void AddProducts();
  void AddDevices();
};

Metrics::Impl::Impl(const KernelRegistry& registry_of_kernels) {
  AddCalls();
  AddKernels(registry_of_kernels);
  AddProducts();
  AddDevices();
  sources.push_back(std::make_shared<ProcessMetrics>());
  GaugeFamily("gemmd_build_info", "What this program was built from.")
      .Add({{"version", std::string(BuildVersion())},
            {"revision", std::string(BuildRevision())},
            {"cuda", std::string(BuildCuda())}})
      .Set(1);
}

void Metrics::Impl::AddCalls() {
  started = Children(
      CounterFamily("grpc_server_call_started_total", "RPCs that began."),
      "grpc_method", kMethodNames);
  auto& ended =
      CounterFamily("grpc_server_call_completed_total", "RPCs that ended.");
  for (int method = 0; method < kMethodCount; ++method) {
    for (int code = 0; code < kStatusCodeCount; ++code) {
      completed[method][code] =
          &ended.Add({{"grpc_method", kMethodNames[method]},
                      {"grpc_status", kStatusNames[code]}});
    }
  }
  durations = Children(HistogramFamily("grpc_server_call_duration_seconds",
                                       "From an RPC's arrival to its status."),
                       "grpc_method", kMethodNames, kCallBuckets);
  const Buckets sizes = Exponential(1024, 4, 12);  // 1 KiB to 4 GiB
  received_bytes =
      Children(HistogramFamily("grpc_server_call_rcvd_total_message_size_bytes",
                               "Message bytes received in an RPC."),
               "grpc_method", kMethodNames, sizes);
  sent_bytes =
      Children(HistogramFamily("grpc_server_call_sent_total_message_size_bytes",
                               "Message bytes sent in an RPC."),
               "grpc_method", kMethodNames, sizes);
}

void Metrics::Impl::AddKernels(const KernelRegistry& registry_of_kernels) {
  auto& flops = CounterFamily("gemmd_flops_total",
                              "Floating-point operations done (2mnk).");
  auto& busy = CounterFamily("gemmd_kernel_busy_seconds_total",
                             "Time in which launches of the kernel ran.");
  auto& launches =
      CounterFamily("gemmd_kernel_launches_total", "Launches of the kernel.");
  auto& sizes =
      HistogramFamily("gemmd_batch_size", "Products that shared a batch.");
  for (const KernelEntry& entry : registry_of_kernels.entries()) {
    if (entry.kernel == nullptr) continue;
    const Labels labels = {{"kernel", entry.info.name}};
    kernels[entry.kernel.get()] = {&flops.Add(labels), &busy.Add(labels),
                                   &launches.Add(labels),
                                   &sizes.Add(labels, Exponential(1, 2, 9))};
  }
}

void Metrics::Impl::AddProducts() {
  stages = Children(HistogramFamily("gemmd_request_stage_duration_seconds",
                                    "Where the time of a product went."),
                    "stage", kStageNames, kStageBuckets);
  sheds =
      Children(CounterFamily("gemmd_requests_shed_total",
                             "Products refused or dropped before they ran."),
               "reason", kShedNames);
  flushes = Children(
      CounterFamily("gemmd_batch_flush_total", "Batches, by why they closed."),
      "reason", kFlushNames);
  transfers =
      Children(CounterFamily("gemmd_transfer_bytes_total",
                             "Bytes copied to (h2d) and from (d2h) devices."),
               "direction", std::array<const char*, 2>{"h2d", "d2h"});
  problem_flops =
      &HistogramFamily("gemmd_problem_flops", "2mnk of the products accepted.")
           .Add({}, Exponential(1e3, 10, 12));
  queue_depth =
      &GaugeFamily("gemmd_queue_depth", "Products waiting for a device.")
           .Add({});
  queue_bytes =
      &GaugeFamily("gemmd_queue_bytes", "Bytes of the products waiting.")
           .Add({});
  queue_capacity = &GaugeFamily("gemmd_queue_capacity",
                                "Products that may wait (the flag "
                                "--queue-max-requests).")
                        .Add({});
  inflight = &GaugeFamily("gemmd_inflight_requests",
                          "Products between acceptance and answer.")
                  .Add({});
}

void Metrics::Impl::AddDevices() {
  device_info = &GaugeFamily("gemmd_device_info", "The devices in use.");
  device_up = &GaugeFamily("gemmd_device_up", "0 once a device has failed.");
  streams = &GaugeFamily("gemmd_streams",
                         "Batches that a device runs at the same time.");
  device_faults = &CounterFamily("gemmd_device_faults_total",
                                 "Faults after which a device is not used.");
}

Metrics::Metrics(bool enabled, const KernelRegistry& kernels)
    : impl_(enabled ? std::make_unique<Impl>(kernels) : nullptr) {}

Metrics::~Metrics() = default;

void Metrics::CallStarted(Method method) {
  if (impl_ == nullptr) return;
  impl_->started[static_cast<int>(method)]->Increment();
}

void Metrics::CallCompleted(Method method, grpc::StatusCode code,
                            double seconds) {
  if (impl_ == nullptr) return;
  const int index = code >= 0 && code < kStatusCodeCount
                        ? static_cast<int>(code)
                        : static_cast<int>(grpc::StatusCode::UNKNOWN);
  impl_->completed[static_cast<int>(method)][index]->Increment();
  impl_->durations[static_cast<int>(method)]->Observe(seconds);
}

void Metrics::MessageSizes(Method method, size_t received, size_t sent) {
  if (impl_ == nullptr) return;
  impl_->received_bytes[static_cast<int>(method)]->Observe(received);
  impl_->sent_bytes[static_cast<int>(method)]->Observe(sent);
}

void Metrics::StageDone(Stage stage, double seconds) {
  if (impl_ == nullptr) return;
  impl_->stages[static_cast<int>(stage)]->Observe(seconds);
}

void Metrics::Shed(ShedReason reason) {
  if (impl_ == nullptr) return;
  impl_->sheds[static_cast<int>(reason)]->Increment();
}

void Metrics::Problem(double flops) {
  if (impl_ == nullptr) return;
  impl_->problem_flops->Observe(flops);
}

void Metrics::SetInflight(int requests) {
  if (impl_ == nullptr) return;
  impl_->inflight->Set(requests);
}

void Metrics::SetQueueCapacity(int requests) {
  if (impl_ == nullptr) return;
  impl_->queue_capacity->Set(requests);
}

void Metrics::SetDevice(const DeviceInfo& device, bool up) {
  if (impl_ == nullptr) return;
  const std::string label = DeviceLabel(device.index);
  impl_->device_info
      ->Add({{"device", label},
             {"name", device.name},
             {"compute_capability", device.compute_capability}})
      .Set(1);
  impl_->streams->Add({{"device", label}}).Set(device.streams);
  impl_->device_faults->Add({{"device", label}});
  impl_->device_up->Add({{"device", label}}).Set(up ? 1 : 0);
}

void Metrics::AddSource(std::shared_ptr<prometheus::Collectable> source) {
  if (impl_ == nullptr) return;
  MutexLock lock(&impl_->mu);
  impl_->sources.push_back(std::move(source));
}

void Metrics::OnBatch(const Batch& batch, const BatchReport& report) {
  if (impl_ == nullptr) return;
  impl_->flushes[static_cast<int>(batch.reason)]->Increment();
  impl_->transfers[0]->Increment(static_cast<double>(report.h2d_bytes));
  impl_->transfers[1]->Increment(static_cast<double>(report.d2h_bytes));
  const auto found = impl_->kernels.find(batch.kernel);
  if (found == impl_->kernels.end() || report.tasks == 0) return;
  const Impl::Kernel& kernel = found->second;
  kernel.flops->Increment(report.flops);
  kernel.busy_seconds->Increment(report.seconds.compute);
  kernel.launches->Increment(batch.kernel->info().fused ? 1 : report.tasks);
  kernel.batch_size->Observe(report.tasks);
}

void Metrics::OnQueueDepth(int requests, size_t bytes) {
  if (impl_ == nullptr) return;
  impl_->queue_depth->Set(requests);
  impl_->queue_bytes->Set(static_cast<double>(bytes));
}

void Metrics::OnDeviceFault(int device, const absl::Status&) {
  if (impl_ == nullptr) return;
  const std::string label = DeviceLabel(device);
  impl_->device_up->Add({{"device", label}}).Set(0);
  impl_->device_faults->Add({{"device", label}}).Increment();
}

std::string Metrics::Render() const {
  if (impl_ == nullptr) return "";
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  MutexLock lock(&impl_->mu);
  for (const auto& source : impl_->sources) {
    for (auto& family : source->Collect())
      families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gemmd
