// Between the wire's plan and the scheduler's task: the kernel, the staging
// memory, and what is counted of its end.

#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/execute/staging.h"
#include "server/observe/metrics.h"
#include "server/rpc/byte_stream.h"
#include "server/rpc/sgemm_validation.h"
#include "server/schedule/task.h"

namespace gemmd {

// The kernel for the plan: the one it names, else `default_kernel`. NOT_FOUND
// with ResourceInfo, or FAILED_PRECONDITION saying why it cannot do this; both
// with ErrorInfo, whose metadata "kernels" has the names that can run here.
absl::StatusOr<const SgemmKernel*> SelectSgemmKernel(
    const SgemmPlan& plan, absl::string_view default_kernel,
    const KernelRegistry& registry, MemorySpace space);

// Takes staging memory and copies the inline operands into it, each once. What
// is resident or shared, kernel, client and times are left to the caller.
// Errors: those of Allocate.
absl::StatusOr<TaskSpec> StageSgemm(const SgemmPlan& plan,
                                    std::span<const ByteSlice> slices,
                                    StagingPool& staging);

// Counts an end that kept the product from a device, by its reason.
void CountShed(const absl::Status& status, Metrics& metrics);

void RecordStages(const StageSeconds& seconds, double encode_seconds,
                  Metrics& metrics);

}  // namespace gemmd
