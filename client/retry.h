// Whether and when a call that failed is tried again.

#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gemmd/client.h"

namespace gemmd::client {

// How long to wait before the next try, as RetryPolicy says; nullopt: `status`
// is the call's end.
//
// attempts:   tries made so far, at least 1.
// remaining:  until the call's deadline.
// uniform:    a random number in [0, 1), for the jitter.
std::optional<absl::Duration> NextRetryDelay(const RetryPolicy& policy,
                                             const absl::Status& status,
                                             int attempts,
                                             absl::Duration remaining,
                                             double uniform);

}  // namespace gemmd::client
