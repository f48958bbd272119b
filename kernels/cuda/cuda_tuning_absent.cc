// Tuning in a build without CUDA.

#include "absl/status/status.h"
#include "kernels/tuning_device.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<TuningDevice>> CreateCudaTuningDevice() {
  return absl::FailedPreconditionError("this build has no CUDA");
}

absl::StatusOr<SelectionStamp> DeviceStamp(std::string) {
  return absl::FailedPreconditionError("this build has no CUDA");
}

}  // namespace gemmd
