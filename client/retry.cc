#include "client/retry.h"

#include <algorithm>
#include <cmath>

#include "proto/error_details.h"

namespace gemmd::client {

std::optional<absl::Duration> NextRetryDelay(const RetryPolicy& policy,
                                             const absl::Status& status,
                                             int attempts,
                                             absl::Duration remaining,
                                             double uniform) {
  const std::optional<absl::Duration> asked = RetryDelay(status);
  const bool retriable =
      absl::IsUnavailable(status) ||
      (absl::IsResourceExhausted(status) && asked.has_value());
  if (!retriable || attempts >= policy.max_attempts) return std::nullopt;
  const absl::Duration backoff =
      std::min(policy.initial_backoff * std::exp2(attempts - 1),
               policy.max_backoff) *
      (0.5 + 0.5 * uniform);
  const absl::Duration delay =
      std::max(backoff, asked.value_or(absl::ZeroDuration()));
  if (delay >= remaining) return std::nullopt;
  return delay;
}

}  // namespace gemmd::client
