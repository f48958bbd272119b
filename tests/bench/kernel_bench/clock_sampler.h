// The device's clock and power while something runs.

#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/observe/nvml_library.h"

namespace gemmd {

// Reads NVML every few milliseconds on a thread of its own.
class ClockSampler {
 public:
  // Of the device with that UUID ("GPU-..."); gives 0 where NVML cannot tell.
  explicit ClockSampler(const std::string& uuid);
  ~ClockSampler();

  struct Reading {
    double sm_clock_mhz = 0;
    double power_watts = 0;
  };
  // The medians since the last call.
  Reading Take();

 private:
  void Run(const std::stop_token& stop);

  std::unique_ptr<NvmlLibrary> nvml_;
  NvmlLibrary::Device device_ = nullptr;
  std::mutex mu_;
  std::vector<double> mhz_;    // guarded by mu_
  std::vector<double> watts_;  // guarded by mu_
  std::jthread thread_;        // last: it uses the others
};

}  // namespace gemmd
