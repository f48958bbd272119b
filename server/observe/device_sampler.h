// The gemmd_device_* series that come from NVML: read by a timer, so that a
// scrape costs no driver call.

#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/mutex.h"
#include "server/observe/nvml_library.h"

namespace gemmd {

// A device in use, and how NVML knows it.
struct SampledDevice {
  int index = 0;     // the label `device`
  std::string uuid;  // "GPU-..."
};

// Utilisation, memory, power, temperature, clock, energy and XID errors of
// GPUs, and the driver's versions. A value that a GPU does not give is left
// out.
//
// Thread-safe.
class DeviceSampler : public prometheus::Collectable {
 public:
  // Samples now and then every `interval`. Devices that NVML does not know by
  // their UUID are left out, with a line in the log.
  DeviceSampler(std::unique_ptr<NvmlLibrary> library,
                std::span<const SampledDevice> devices,
                absl::Duration interval);
  ~DeviceSampler() override;

  // The last samples.
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Entry {
    int index;
    NvmlLibrary::Device device;
    bool watched;  // for XID errors
    GpuSample sample;
    double xid_errors = 0;  // since the start
    double last_xid = 0;
  };

  void SampleAll();
  void AddXidErrors(std::vector<prometheus::MetricFamily>* families) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  prometheus::MetricFamily DriverInfo() const;
  void Run(absl::Duration interval);

  const std::unique_ptr<NvmlLibrary> library_;
  const prometheus::MetricFamily driver_info_;

  mutable Mutex mu_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);

  std::thread thread_;  // last: runs on the rest
};

}  // namespace gemmd
