// The backend without a GPU: the kernels of the host, on its own memory.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "server/execute/backend.h"

namespace gemmd {

// One device, of options.streams_per_device streams. The default is 1: the BLAS
// library spreads each product over the cores itself and takes its threads for
// one call at a time, so a second stream would only wait for them and take
// cache away from the first.
//
// INVALID_ARGUMENT if options.devices names another than 0.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(
    const BackendOptions& options, const KernelRegistry& registry);

}  // namespace gemmd
