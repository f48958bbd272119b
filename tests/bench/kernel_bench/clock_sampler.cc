#include "tests/bench/kernel_bench/clock_sampler.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gemmd {
namespace {

double TakeMedian(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  const double median = *middle;
  values.clear();
  return median;
}

}  // namespace

ClockSampler::ClockSampler(const std::string& uuid) {
  auto nvml = NvmlLibrary::Load();
  if (!nvml.ok()) return;
  const auto device = (*nvml)->FindDevice(uuid);
  if (!device.ok()) return;
  nvml_ = *std::move(nvml);
  device_ = *device;
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

ClockSampler::~ClockSampler() = default;

void ClockSampler::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const GpuSample sample = nvml_->Sample(device_);
    {
      const std::lock_guard lock(mu_);
      if (sample.sm_clock_hertz) mhz_.push_back(*sample.sm_clock_hertz / 1e6);
      if (sample.power_watts) watts_.push_back(*sample.power_watts);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

ClockSampler::Reading ClockSampler::Take() {
  const std::lock_guard lock(mu_);
  return {TakeMedian(mhz_), TakeMedian(watts_)};
}

}  // namespace gemmd
