// What a lease does before its first batch.

#pragma once

#include "absl/status/status.h"
#include "kernels/registry.h"
#include "server/execute/cuda/device_memory_pool.h"
#include "server/execute/cuda/lease.h"
#include "server/execute/staging.h"

namespace gemmd {

// Runs every kernel of the registry and every way to copy once on the lease's
// stream, and waits for them. Of one lease with `all_sizes`, so that whatever a
// library chooses by size is loaded; a handful does for the others.
absl::Status WarmLease(Lease& lease, bool all_sizes, DeviceMemoryPool& memory,
                       const KernelRegistry& registry, StagingPool& staging);

}  // namespace gemmd
