// CreateBackend and DevicesFor of a build with CUDA.

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/execute/backend.h"
#include "server/execute/cpu/cpu_backend.h"
#include "server/execute/cuda/cuda_backend.h"

namespace gemmd {

std::vector<int> DevicesFor(const BackendOptions& options) {
  if (options.backend == "cpu") return {};
  BackendOptions quiet = options;
  quiet.warn = nullptr;
  return CudaDevices(quiet).value_or(std::vector<int>());
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options, const KernelRegistry& registry) {
  if (options.backend == "cpu") return CreateCpuBackend(options, registry);
  if (options.backend != "auto" && options.backend != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown backend \"", options.backend,
                     "\"; there are auto, cpu and cuda (--backend)"));
  }
  absl::StatusOr<std::unique_ptr<Backend>> cuda =
      CreateCudaBackend(options, registry);
  // Where no device answers the CPU will do, unless one was named; where one
  // should, the operator is to know why the server is so much slower.
  if (options.backend == "auto" && options.devices.empty() &&
      absl::IsFailedPrecondition(cuda.status())) {
    if (CudaIsInstalled() && options.warn) {
      options.warn(
          absl::StrCat("serving on the CPU: ", cuda.status().message()));
    }
    return CreateCpuBackend(options, registry);
  }
  return cuda;
}

}  // namespace gemmd
