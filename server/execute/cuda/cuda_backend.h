// The backend of CUDA devices.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/execute/backend.h"

namespace gemmd {

// Every device of options.devices (empty: all) that answers: a small copy there
// and back has been done on each.
//
// INVALID_ARGUMENT for a device that does not exist; FAILED_PRECONDITION,
// saying what is missing, where there is none or one of them does not answer.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const BackendOptions& options, const KernelRegistry& registry);

}  // namespace gemmd
