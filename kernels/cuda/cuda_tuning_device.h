// Times launches on the current CUDA device, as CUDA graphs where they are
// short: the part of tuning that tests and benchmarks use too.

#pragma once

#include <functional>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/tuning_device.h"

namespace gemmd {

class CudaTuningDevice : public TuningDevice {
 public:
  static absl::StatusOr<std::unique_ptr<CudaTuningDevice>> Create();

  // Enqueues the products on context.stream.
  using Launcher = std::function<absl::Status(std::span<const SgemmArgs>,
                                              const LaunchContext&)>;

  // Microseconds() for what is no SgemmKernel. The result must be within the
  // bound of PRECISION_FP32 where `check`, else finite.
  virtual absl::StatusOr<double> MicrosecondsOf(const Launcher& launch,
                                                size_t workspace_bytes,
                                                const SgemmArgs& like,
                                                int products, bool check) = 0;
};

}  // namespace gemmd
