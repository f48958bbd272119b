#include "server/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/mutex.h"
#include "server/observe/memory_gauges.h"
#include "server/observe/metric_series.h"

namespace gemmd {
namespace {

prometheus::Labels OfDevice(int device) {
  return {{"device", absl::StrCat(device)}};
}

DeviceError LaunchError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? DeviceError::kMemory
                                           : DeviceError::kLaunch;
}

}  // namespace

Metrics::Metrics(bool enabled, const KernelRegistry& kernels)
    : series_(enabled ? std::make_unique<MetricSeries>(kernels) : nullptr) {}

Metrics::~Metrics() = default;

void Metrics::CallStarted(Method method) {
  if (series_ == nullptr) return;
  series_->started[static_cast<int>(method)]->Increment();
}

void Metrics::CallCompleted(Method method, grpc::StatusCode code,
                            double seconds) {
  if (series_ == nullptr) return;
  const int index = code >= 0 && code < kStatusCodeCount
                        ? static_cast<int>(code)
                        : static_cast<int>(grpc::StatusCode::UNKNOWN);
  series_->completed[static_cast<int>(method)][index]->Increment();
  series_->durations[static_cast<int>(method)]->Observe(seconds);
}

void Metrics::MessageSizes(Method method, size_t received, size_t sent) {
  if (series_ == nullptr) return;
  series_->received_bytes[static_cast<int>(method)]->Observe(received);
  series_->sent_bytes[static_cast<int>(method)]->Observe(sent);
}

void Metrics::StageDone(Stage stage, double seconds) {
  if (series_ == nullptr) return;
  series_->stages[static_cast<int>(stage)]->Observe(seconds);
}

void Metrics::Shed(ShedReason reason) {
  if (series_ == nullptr) return;
  series_->sheds[static_cast<int>(reason)]->Increment();
}

void Metrics::Problem(double flops) {
  if (series_ == nullptr) return;
  series_->problem_flops->Observe(flops);
}

void Metrics::SetInflight(int requests) {
  if (series_ == nullptr) return;
  series_->inflight->Set(requests);
}

void Metrics::SetQueueCapacity(int requests) {
  if (series_ == nullptr) return;
  series_->queue_capacity->Set(requests);
}

void Metrics::SetReady(bool ready) {
  if (series_ == nullptr) return;
  series_->ready->Set(ready ? 1 : 0);
}

void Metrics::SetDevice(const DeviceInfo& device, bool up) {
  if (series_ == nullptr) return;
  prometheus::Labels labels = OfDevice(device.index);
  labels["name"] = device.name;
  labels["uuid"] = device.uuid;
  labels["compute_capability"] = device.compute_capability;
  series_->device_info->Add(labels).Set(1);
  labels = OfDevice(device.index);
  series_->device_up->Add(labels).Set(up ? 1 : 0);
  if (device.peak_flops > 0) {
    series_->device_peak_flops->Add(labels).Set(device.peak_flops);
  }
  series_->streams->Add(labels).Set(device.streams);
  auto& busy = series_->streams_busy;
  busy.resize(std::max<size_t>(busy.size(), device.index + 1));
  busy[device.index] = &series_->streams_busy_family->Add(labels);
}

void Metrics::AddSource(std::shared_ptr<prometheus::Collectable> source) {
  if (series_ == nullptr) return;
  MutexLock lock(&series_->mu);
  series_->sources.push_back(std::move(source));
}

void Metrics::OnBatch(const Batch& batch, const BatchReport& report) {
  if (series_ == nullptr) return;
  series_->flushes[static_cast<int>(batch.reason)]->Increment();
  series_->transfers[0]->Increment(static_cast<double>(report.h2d_bytes));
  series_->transfers[1]->Increment(static_cast<double>(report.d2h_bytes));
  if (!report.launch_status.ok()) CountError(LaunchError(report.launch_status));
  const auto found = series_->kernels.find(batch.kernel);
  if (found == series_->kernels.end() || report.tasks == 0) return;
  const KernelSeries& kernel = found->second;
  kernel.flops->Increment(report.flops);
  kernel.busy_seconds->Increment(report.seconds.compute);
  kernel.launches->Increment(batch.fused ? 1 : report.tasks);
  kernel.batch_size->Observe(report.tasks);
}

void Metrics::OnStreams(int device, int change) {
  if (series_ == nullptr) return;
  series_->streams_busy[device]->Increment(change);
}

void Metrics::AddMemory(const std::string& name, const std::string& help,
                        std::function<size_t()> used, size_t capacity) {
  if (series_ == nullptr) return;
  AddSource(
      std::make_shared<MemoryGauges>(name, help, std::move(used), capacity));
}

void Metrics::OnQueueDepth(int requests, size_t bytes) {
  if (series_ == nullptr) return;
  series_->queue_depth->Set(requests);
  series_->queue_bytes->Set(static_cast<double>(bytes));
}

void Metrics::OnDeviceFault(int device, const absl::Status&) {
  if (series_ == nullptr) return;
  series_->device_up->Add(OfDevice(device)).Set(0);
  CountError(DeviceError::kSticky);
}

void Metrics::CountError(DeviceError error) {
  series_->device_errors[static_cast<int>(error)]->Increment();
}

std::string Metrics::Render() const {
  if (series_ == nullptr) return "";
  std::vector<prometheus::MetricFamily> families = series_->registry.Collect();
  MutexLock lock(&series_->mu);
  for (const auto& source : series_->sources) {
    for (auto& family : source->Collect())
      families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gemmd
