// Checks of single fields that several messages share. A path is that of the
// field, as "a.leading_dimension"; an error is INVALID_ARGUMENT and names it.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/rpc/sgemm_fields.h"

namespace gemmd {

inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxKernelNameBytes = 64;
inline constexpr size_t kMaxMatrixIdBytes = 128;
inline constexpr size_t kDigestBytes = 32;
// Of one message of an upload or a download.
inline constexpr size_t kMaxChunkBytes = size_t{1} << 20;

// At most `max_bytes`.
absl::Status CheckTextSize(absl::string_view path, const ShortText& text,
                           size_t max_bytes);

// 1 to 128 of [A-Za-z0-9._-].
absl::Status CheckMatrixId(absl::string_view path, const ShortText& id);

// A positive google.protobuf.Duration in its defined range.
absl::StatusOr<absl::Duration> CheckTtl(absl::string_view path,
                                        const DurationFields& ttl);

// Rows [first, first + count) of a matrix.
struct MatrixRows {
  int64_t first = 0;
  int64_t count = 0;
};

// Rows `first` to `first` + `count` of a matrix of `rows`, where a count of 0
// means all from `first` on. `prefix` stands before the names of the fields, as
// "header.".
absl::StatusOr<MatrixRows> CheckRowRange(absl::string_view prefix, int64_t rows,
                                         uint64_t first, uint64_t count);

// A region's id of 16 bytes, and an offset that is a multiple of 4.
absl::Status CheckSharedMemorySlice(absl::string_view path,
                                    const SharedMemorySliceFields& slice);

// `<name>.leading_dimension`: at least `cols`, or 0, which means `cols`.
absl::Status CheckLeadingDimension(absl::string_view name,
                                   uint64_t leading_dimension, uint64_t cols);

}  // namespace gemmd
