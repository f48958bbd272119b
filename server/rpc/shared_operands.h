// The slices of shared memory that a product reads and writes.

#pragma once

#include "absl/status/status.h"
#include "server/rpc/sgemm_validation.h"
#include "server/schedule/task.h"
#include "server/store/shared_regions.h"

namespace gemmd {

// Finds the regions that the plan names and sets the slices of `spec`.
//
// Errors: NOT_FOUND with ResourceInfo for a region that is not there (any
// more); INVALID_ARGUMENT, naming the field, for a slice that ends beyond it.
absl::Status FindSharedOperands(const SgemmPlan& plan,
                                const SharedRegions& regions, TaskSpec& spec);

}  // namespace gemmd
