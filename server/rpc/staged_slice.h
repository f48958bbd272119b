// Staging memory on its way to a client.

#pragma once

#include <grpcpp/support/slice.h>

#include "server/execute/staging.h"
#include "server/rpc/live_count.h"
#include "server/schedule/admission.h"

namespace gemmd {

// The buffer's bytes where they lie, as a slice that owns buffer and ticket:
// they go back to their pool and to admission when gRPC has let go of it.
// `buffer` is not empty. `answers` counts such slices, and outlives them.
grpc::Slice StagedSlice(StagingBuffer buffer, Admission::Ticket ticket,
                        LiveCount* answers);

}  // namespace gemmd
