// A transfer's rows, shared out to connections.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace gemmd::client {

// Calls `transfer(first, count)` for ranges that cover `rows` rows of
// `row_bytes` each, on up to `connections` threads (the caller's is one), and
// returns the first error. One range when there is less than 8 MiB for each;
// one empty range when there are no rows.
absl::Status ForEachPart(
    int64_t rows, uint64_t row_bytes, int connections,
    absl::FunctionRef<absl::Status(int64_t first, int64_t count)> transfer);

}  // namespace gemmd::client
