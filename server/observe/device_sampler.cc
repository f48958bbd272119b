#include "server/observe/device_sampler.h"

#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/monotonic_time.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// A series of every GPU: `value` picks it from a sample.
struct Series {
  const char* name;
  const char* help;
  MetricType type;
  const char* state;  // a label, or null
  std::optional<double> GpuSample::*value;
};

// Series of one name stand together.
constexpr Series kSeries[] = {
    {"gemmd_device_utilization_ratio",
     "Share of the last second in which a kernel ran.", MetricType::Gauge,
     nullptr, &GpuSample::utilization_ratio},
    {"gemmd_device_memory_bytes", "Device memory.", MetricType::Gauge, "used",
     &GpuSample::memory_used_bytes},
    {"gemmd_device_memory_bytes", "Device memory.", MetricType::Gauge, "free",
     &GpuSample::memory_free_bytes},
    {"gemmd_device_power_watts", "Power drawn.", MetricType::Gauge, nullptr,
     &GpuSample::power_watts},
    {"gemmd_device_temperature_celsius", "Temperature of the GPU.",
     MetricType::Gauge, nullptr, &GpuSample::temperature_celsius},
    {"gemmd_device_sm_clock_hertz", "Clock of the multiprocessors.",
     MetricType::Gauge, nullptr, &GpuSample::sm_clock_hertz},
    {"gemmd_device_energy_joules_total", "Energy since the driver was loaded.",
     MetricType::Counter, nullptr, &GpuSample::energy_joules}};

}  // namespace

DeviceSampler::DeviceSampler(std::unique_ptr<NvmlLibrary> library,
                             std::span<const SampledDevice> devices,
                             absl::Duration interval)
    : library_(std::move(library)), driver_info_(DriverInfo()) {
  for (const SampledDevice& device : devices) {
    const auto found = library_->FindDevice(device.uuid);
    if (!found.ok()) {
      Log(LogLevel::kInfo, "no samples of a device",
          {{"device", absl::StrCat(device.index)},
           {"reason", std::string(found.status().message())}});
      continue;
    }
    const bool watched = library_->WatchXidErrors(*found);
    MutexLock lock(&mu_);
    entries_.push_back({device.index, *found, watched, {}});
  }
  SampleAll();
  thread_ = std::thread([this, interval] { Run(interval); });
}

DeviceSampler::~DeviceSampler() {
  {
    MutexLock lock(&mu_);
    stop_ = true;
  }
  stopped_.SignalAll();
  thread_.join();
}

void DeviceSampler::SampleAll() {
  std::vector<Entry> entries;
  {
    MutexLock lock(&mu_);
    entries = entries_;
  }
  for (Entry& entry : entries) entry.sample = library_->Sample(entry.device);
  for (const NvmlLibrary::XidError& error : library_->TakeXidErrors()) {
    for (Entry& entry : entries) {
      if (entry.device != error.device) continue;
      ++entry.xid_errors;
      entry.last_xid = static_cast<double>(error.xid);
      Log(LogLevel::kError, "the driver reports an error of a device",
          {{"device", absl::StrCat(entry.index)},
           {"xid", absl::StrCat(error.xid)}});
    }
  }
  MutexLock lock(&mu_);
  entries_ = std::move(entries);
}

void DeviceSampler::Run(absl::Duration interval) {
  const auto step = absl::ToChronoNanoseconds(interval);
  for (MonotonicTime next = MonotonicClock::now() + step;; next += step) {
    {
      MutexLock lock(&mu_);
      while (!stop_ && MonotonicClock::now() < next) {
        stopped_.WaitUntil(&mu_, next);
      }
      if (stop_) return;
    }
    SampleAll();
  }
}

void DeviceSampler::AddXidErrors(std::vector<MetricFamily>* families) const {
  MetricFamily count{"gemmd_device_xid_errors_total",
                     "Errors that the driver reported of the device.",
                     MetricType::Counter,
                     {}};
  MetricFamily last{"gemmd_device_last_xid",
                    "The XID number of the last of them; 0: none.",
                    MetricType::Gauge,
                    {}};
  for (const Entry& entry : entries_) {
    if (!entry.watched) continue;
    ClientMetric metric;
    metric.label.push_back({"device", absl::StrCat(entry.index)});
    metric.counter.value = entry.xid_errors;
    metric.gauge.value = entry.last_xid;
    count.metric.push_back(metric);
    last.metric.push_back(metric);
  }
  families->push_back(std::move(count));
  families->push_back(std::move(last));
}

MetricFamily DeviceSampler::DriverInfo() const {
  ClientMetric metric;
  metric.label = {{"driver_version", library_->DriverVersion()},
                  {"cuda_version", library_->CudaVersion()}};
  metric.gauge.value = 1;
  return {"gemmd_driver_info",
          "NVIDIA's driver and the newest CUDA it runs.",
          MetricType::Gauge,
          {metric}};
}

std::vector<MetricFamily> DeviceSampler::Collect() const {
  MutexLock lock(&mu_);
  std::vector<MetricFamily> families;
  for (const Series& series : kSeries) {
    if (families.empty() || families.back().name != series.name) {
      families.push_back({series.name, series.help, series.type, {}});
    }
    for (const Entry& entry : entries_) {
      const std::optional<double>& value = entry.sample.*series.value;
      if (!value.has_value()) continue;
      ClientMetric metric;
      metric.label.push_back({"device", absl::StrCat(entry.index)});
      if (series.state != nullptr) {
        metric.label.push_back({"state", series.state});
      }
      (series.type == MetricType::Counter ? metric.counter.value
                                          : metric.gauge.value) = *value;
      families.back().metric.push_back(std::move(metric));
    }
  }
  AddXidErrors(&families);
  families.push_back(driver_info_);
  std::erase_if(families, [](const auto& f) { return f.metric.empty(); });
  return families;
}

}  // namespace gemmd
