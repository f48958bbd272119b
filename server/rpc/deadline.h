// A call's deadline on our clock.

#pragma once

#include <grpc/support/time.h>

#include "server/monotonic_time.h"

namespace gemmd {

// When `deadline` (on any of gRPC's clocks) is; kNever where it is more than a
// year away. A client may ask for 11,000 years, which no nanosecond clock of 64
// bits holds.
MonotonicTime MonotonicDeadline(gpr_timespec deadline);

}  // namespace gemmd
