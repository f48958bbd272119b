// CreateBackend and DevicesFor of a build without CUDA.

#include "absl/strings/str_cat.h"
#include "server/execute/backend.h"
#include "server/execute/cpu/cpu_backend.h"

namespace gemmd {

std::vector<int> DevicesFor(const BackendOptions&) { return {}; }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options, const KernelRegistry& registry) {
  if (options.backend == "auto" && !options.devices.empty()) {
    return absl::InvalidArgumentError(
        "--devices names CUDA devices, and this program was built without "
        "CUDA");
  }
  if (options.backend == "auto" || options.backend == "cpu") {
    return CreateCpuBackend(options, registry);
  }
  if (options.backend == "cuda") {
    return absl::FailedPreconditionError(
        "this program was built without CUDA (GEMMD_CUDA=OFF, or no CUDA "
        "Toolkit was found); --backend cpu or auto will do");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown backend \"", options.backend,
                   "\"; there are auto, cpu and cuda (--backend)"));
}

}  // namespace gemmd
