// What a staging pool says when it cannot give.

#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace gemmd {

// OUT_OF_RANGE: a pool of `capacity` bytes could never hold `bytes`.
absl::Status StagingTooLargeError(size_t bytes, size_t capacity);

// RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo: there is no room for
// `bytes` now.
absl::Status StagingFullError(size_t bytes, size_t used, size_t capacity);

}  // namespace gemmd
