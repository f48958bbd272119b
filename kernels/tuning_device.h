// What tuning asks of a device: how long a kernel takes for a product, and
// whether its result is right.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/selection_table.h"
#include "kernels/sgemm.h"

namespace gemmd {

// Thread-safety: one thread at a time.
class TuningDevice {
 public:
  virtual ~TuningDevice() = default;

  // Microseconds that `kernel` takes for a product like `like` (its shape and
  // leading dimensions; its pointers are ignored) in a launch of `products` of
  // them: the median, launches back to back, operands rotated beyond the cache.
  //
  // The result of a first launch, on uniform [-1, 1] operands and a C full of
  // NaN, is compared with a float64 product before: a sample of 1024 elements,
  // or all if there are no more. DATA_LOSS, saying how far off, if one passes
  // the bound of its precision. What Supports says if it is not OK;
  // RESOURCE_EXHAUSTED if the operands are too large to measure; INTERNAL if a
  // launch fails.
  virtual absl::StatusOr<double> Microseconds(const SgemmKernel& kernel,
                                              const SgemmArgs& like,
                                              int products) = 0;
};

// On the current CUDA device. FAILED_PRECONDITION, for users, without one.
absl::StatusOr<std::unique_ptr<TuningDevice>> CreateCudaTuningDevice();

// What a measurement on the current CUDA device would hold for. `build` says
// which program measures. FAILED_PRECONDITION without a device.
absl::StatusOr<SelectionStamp> DeviceStamp(std::string build);

}  // namespace gemmd
