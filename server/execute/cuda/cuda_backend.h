// The backend of CUDA devices.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/execute/backend.h"

namespace gemmd {

// Whether this machine is meant to have CUDA: there is a driver, and it does
// not say that there is no device. Not whether any of it works.
bool CudaIsInstalled();

// The ordinals of options.devices (empty: all that answer): a small copy there
// and back has been done on each, and all are of one model. Touches no other
// device.
//
// INVALID_ARGUMENT for a device that does not exist; FAILED_PRECONDITION,
// saying what is missing, where none answers, or one that was named.
absl::StatusOr<std::vector<int>> CudaDevices(const BackendOptions& options);

// On all of them.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const BackendOptions& options, const KernelRegistry& registry);

}  // namespace gemmd
