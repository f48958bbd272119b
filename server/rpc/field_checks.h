// Checks of single fields that several messages share. A path is that of the
// field, as "a.leading_dimension"; an error is INVALID_ARGUMENT and names it.

#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/rpc/sgemm_fields.h"

namespace gemmd {

inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxKernelNameBytes = 64;
inline constexpr size_t kMaxMatrixIdBytes = 128;
inline constexpr size_t kRegionIdBytes = 16;

// At most `max_bytes`.
absl::Status CheckTextSize(absl::string_view path, const ShortText& text,
                           size_t max_bytes);

// 1 to 128 of [A-Za-z0-9._-].
absl::Status CheckMatrixId(absl::string_view path, const ShortText& id);

// A positive google.protobuf.Duration in its defined range.
absl::Status CheckTtl(absl::string_view path, const DurationFields& ttl);

// A region's id of 16 bytes, and an offset that is a multiple of 4.
absl::Status CheckSharedMemorySlice(absl::string_view path,
                                    const SharedMemorySliceFields& slice);

// `<name>.leading_dimension`: at least `cols`, or 0, which means `cols`.
absl::Status CheckLeadingDimension(absl::string_view name,
                                   uint64_t leading_dimension, uint64_t cols);

}  // namespace gemmd
