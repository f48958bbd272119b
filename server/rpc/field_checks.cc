#include "server/rpc/field_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "proto/shared_memory.h"

namespace gemmd {
namespace {

constexpr int64_t kMaxDurationSeconds = 315'576'000'000;  // 10,000 years
constexpr int32_t kNanosPerSecond = 1'000'000'000;

bool IsMatrixIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

absl::Status CheckTextSize(absl::string_view path, const ShortText& text,
                           size_t max_bytes) {
  if (text.size <= max_bytes) return absl::OkStatus();
  return InvalidFieldError(path, absl::StrCat(path, " has ", text.size,
                                              " bytes; at most ", max_bytes));
}

absl::Status CheckMatrixId(absl::string_view path, const ShortText& id) {
  if (id.size == 0) {
    return InvalidFieldError(
        path, absl::StrCat(path, " is empty; the id of a matrix is wanted"));
  }
  if (absl::Status s = CheckTextSize(path, id, kMaxMatrixIdBytes); !s.ok()) {
    return s;
  }
  if (!std::all_of(id.head.begin(), id.head.end(), IsMatrixIdCharacter)) {
    return InvalidFieldError(
        path, absl::StrCat(path, " has a character outside [A-Za-z0-9._-]"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> CheckTtl(absl::string_view path,
                                        const DurationFields& ttl) {
  const bool defined = ttl.seconds >= 0 && ttl.seconds <= kMaxDurationSeconds &&
                       ttl.nanos >= 0 && ttl.nanos < kNanosPerSecond;
  if (defined && (ttl.seconds > 0 || ttl.nanos > 0)) {
    return absl::Seconds(ttl.seconds) + absl::Nanoseconds(ttl.nanos);
  }
  return InvalidFieldError(
      path, absl::StrCat(path, " has seconds ", ttl.seconds, " and nanos ",
                         ttl.nanos, "; a positive duration with seconds up to ",
                         kMaxDurationSeconds,
                         " and nanos of 0 to 999999999 is wanted"));
}

absl::StatusOr<MatrixRows> CheckRowRange(absl::string_view prefix, int64_t rows,
                                         uint64_t first, uint64_t count) {
  const auto all = static_cast<uint64_t>(rows);
  // An empty matrix has one range: all of it.
  if (first >= all && !(first == 0 && all == 0)) {
    return InvalidFieldError(absl::StrCat(prefix, "first_row"),
                             absl::StrCat(prefix, "first_row is ", first,
                                          "; the matrix has ", rows, " rows"));
  }
  if (count > all - first) {
    return InvalidFieldError(
        absl::StrCat(prefix, "row_count"),
        absl::StrCat(prefix, "row_count is ", count, "; from row ", first,
                     " on the matrix has ", all - first));
  }
  if (count == 0) count = all - first;
  return MatrixRows{static_cast<int64_t>(first), static_cast<int64_t>(count)};
}

absl::Status CheckSharedMemorySlice(absl::string_view path,
                                    const SharedMemorySliceFields& slice) {
  if (slice.region_id.size != kRegionIdBytes) {
    return InvalidFieldError(
        absl::StrCat(path, ".region_id"),
        absl::StrCat(path, ".region_id has ", slice.region_id.size,
                     " bytes; the ", kRegionIdBytes,
                     " that the server answered are wanted"));
  }
  if (slice.offset % sizeof(float) != 0) {
    return InvalidFieldError(absl::StrCat(path, ".offset"),
                             absl::StrCat(path, ".offset is ", slice.offset,
                                          "; a multiple of 4 is wanted"));
  }
  return absl::OkStatus();
}

absl::Status CheckLeadingDimension(absl::string_view name,
                                   uint64_t leading_dimension, uint64_t cols) {
  if (leading_dimension == 0 || leading_dimension >= cols) {
    return absl::OkStatus();
  }
  const std::string path = absl::StrCat(name, ".leading_dimension");
  return InvalidFieldError(
      path, absl::StrCat(path, " is ", leading_dimension, "; at least ", cols,
                         " (one row), or 0 for that"));
}

}  // namespace gemmd
