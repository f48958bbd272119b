// A message of an upload: the small fields of its header, or where its chunk
// lies.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include "absl/status/statusor.h"
#include "server/rpc/byte_stream.h"
#include "server/rpc/sgemm_fields.h"

namespace gemmd {

// A gemmd.v1.UploadHeader, not judged yet.
struct UploadHeaderFields {
  uint64_t rows = 0;
  uint64_t cols = 0;
  ShortText matrix_id;
  std::optional<DurationFields> ttl;
  ShortText digest;
  uint64_t first_row = 0;
  uint64_t row_count = 0;
};

// Of header and chunk the one that came last; neither where there is none.
using UploadFields =
    std::variant<std::monostate, UploadHeaderFields, ByteRange>;

// Reads a gemmd.v1.UploadMatrixRequest, by the same rules as DecodeSgemm.
absl::StatusOr<UploadFields> DecodeUpload(std::span<const ByteSlice> slices);

}  // namespace gemmd
