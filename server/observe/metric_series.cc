#include "server/observe/metric_series.h"

#include <string>
#include <utility>

#include "server/observe/build_info.h"
#include "server/observe/process_metrics.h"

namespace gemmd {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Labels;
using Bounds = std::vector<double>;

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
constexpr std::array<const char*, kFlushReasonCount> kFlushNames = {
    "full", "timer", "idle", "drain"};
constexpr std::array<const char*, kDeviceErrorCount> kErrorNames = {
    "sticky", "memory", "launch"};

// 1-2-5 steps of seconds; a call's from 50 us (17), a stage's from 5 us (20).
const Bounds kCallBounds = {5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3,
                            5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1,
                            5e-1, 1,    2,    5,    10};
const Bounds kStageBounds = {5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4,
                             1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1,
                             2e-1, 5e-1, 1,    2,    5,    10};

Bounds Exponential(double first, double factor, int count) {
  Bounds bounds;
  for (double bound = first; count > 0; --count, bound *= factor) {
    bounds.push_back(bound);
  }
  return bounds;
}

// One child of `family` for each name of a label.
template <typename T, size_t n>
std::array<T*, n> Children(Family<T>& family, const char* label,
                           const std::array<const char*, n>& names) {
  std::array<T*, n> children;
  for (size_t i = 0; i < n; ++i) {
    children[i] = &family.Add({{label, names[i]}});
  }
  return children;
}

template <size_t n>
std::array<StripedHistogram*, n> Children(
    HistogramFamily& family, const char* label,
    const std::array<const char*, n>& names, const Bounds& bounds) {
  std::array<StripedHistogram*, n> children;
  for (size_t i = 0; i < n; ++i) {
    children[i] = &family.Add({{label, names[i]}}, bounds);
  }
  return children;
}

}  // namespace

absl::string_view MethodName(Method method) {
  return kMethodNames[static_cast<int>(method)];
}

Family<Counter>& MetricSeries::CounterFamily(const char* name,
                                             const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Family<Gauge>& MetricSeries::GaugeFamily(const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

HistogramFamily& MetricSeries::AddHistograms(const char* name,
                                             const char* help) {
  auto family = std::make_shared<HistogramFamily>(name, help);
  HistogramFamily& added = *family;
  MutexLock lock(&mu);
  sources.push_back(std::move(family));
  return added;
}

MetricSeries::MetricSeries(const KernelRegistry& registry_of_kernels) {
  AddCalls();
  AddKernels(registry_of_kernels);
  AddProducts();
  AddQueue();
  AddDevices();
  AddProcess();
}

void MetricSeries::AddCalls() {
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
  durations = Children(AddHistograms("grpc_server_call_duration_seconds",
                                     "From an RPC's arrival to its status."),
                       "grpc_method", kMethodNames, kCallBounds);
  const Bounds sizes = Exponential(1024, 4, 12);  // 1 KiB to 4 GiB
  received_bytes =
      Children(AddHistograms("grpc_server_call_rcvd_total_message_size_bytes",
                             "Message bytes received in an RPC."),
               "grpc_method", kMethodNames, sizes);
  sent_bytes =
      Children(AddHistograms("grpc_server_call_sent_total_message_size_bytes",
                             "Message bytes sent in an RPC."),
               "grpc_method", kMethodNames, sizes);
}

void MetricSeries::AddKernels(const KernelRegistry& registry_of_kernels) {
  auto& flops = CounterFamily("gemmd_flops_total",
                              "Floating-point operations done (2mnk).");
  auto& busy = CounterFamily("gemmd_kernel_busy_seconds_total",
                             "Time in which launches of the kernel ran.");
  auto& launches =
      CounterFamily("gemmd_kernel_launches_total", "Launches of the kernel.");
  auto& sizes =
      AddHistograms("gemmd_batch_size", "Products that shared a batch.");
  for (const KernelEntry& entry : registry_of_kernels.entries()) {
    if (entry.kernel == nullptr) continue;
    const Labels labels = {{"kernel", entry.info.name}};
    kernels[entry.kernel.get()] = {
        &flops.Add(labels), &busy.Add(labels), &launches.Add(labels),
        &sizes.Add({{"kernel", entry.info.name}}, Exponential(1, 2, 9))};
  }
}

void MetricSeries::AddProducts() {
  stages = Children(AddHistograms("gemmd_request_stage_duration_seconds",
                                  "Where the time of a product went."),
                    "stage", kStageNames, kStageBounds);
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
      &AddHistograms("gemmd_problem_flops", "2mnk of the products accepted.")
           .Add({}, Exponential(1e3, 10, 12));
}

void MetricSeries::AddQueue() {
  const auto gauge = [this](const char* name, const char* help) {
    return &GaugeFamily(name, help).Add({});
  };
  ready = gauge("gemmd_ready", "1 while the server asks for requests.");
  queue_depth = gauge("gemmd_queue_depth", "Products waiting for a device.");
  queue_bytes = gauge("gemmd_queue_bytes", "Bytes of the products waiting.");
  queue_capacity =
      gauge("gemmd_queue_capacity",
            "Products that may wait (the flag --queue-max-requests).");
  inflight = gauge("gemmd_inflight_requests",
                   "Products between acceptance and answer.");
}

void MetricSeries::AddDevices() {
  device_info = &GaugeFamily("gemmd_device_info", "The devices in use.");
  device_up = &GaugeFamily("gemmd_device_up", "0 once a device has failed.");
  device_peak_flops =
      &GaugeFamily("gemmd_device_peak_flops",
                   "FP32 operations a second that the device's cores can do "
                   "at their highest clock.");
  streams = &GaugeFamily("gemmd_streams",
                         "Batches that a device runs at the same time.");
  streams_busy_family =
      &GaugeFamily("gemmd_streams_busy", "Batches that a device runs now.");
  device_errors =
      Children(CounterFamily("gemmd_device_errors_total",
                             "Errors of devices: sticky (the device is not "
                             "used after it), memory, launch."),
               "class", kErrorNames);
}

void MetricSeries::AddProcess() {
  GaugeFamily("gemmd_build_info", "What this program was built from.")
      .Add({{"version", std::string(BuildVersion())},
            {"revision", std::string(BuildRevision())},
            {"cuda", std::string(BuildCuda())}})
      .Set(1);
  MutexLock lock(&mu);
  sources.push_back(std::make_shared<ProcessMetrics>());
}

}  // namespace gemmd
