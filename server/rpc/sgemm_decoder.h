// From a message's bytes to its fields: the first of the two passes over a
// request. It reads the small fields, skips the bulk and notes where it lies,
// so that nothing is allocated for a message that turns out to be bad.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "server/rpc/byte_stream.h"
#include "server/rpc/sgemm_fields.h"

namespace gemmd {

// Reads a gemmd.v1.SgemmRequest.
//
// Accepts exactly what protobuf's generated parser accepts, with the same
// fields as a result: any order, unknown fields, repeated and split
// sub-messages merged, the last member of a oneof wins. A differential test and
// a fuzzer hold it to that.
//
// Errors: INVALID_ARGUMENT, saying at which byte the message breaks.
absl::StatusOr<SgemmFields> DecodeSgemm(std::span<const ByteSlice> slices);

// A gemmd.v1.SgemmStreamRequest. Places are counted from its own start.
struct SgemmStreamFields {
  uint64_t sequence = 0;
  std::optional<SgemmFields> request;
};

// The same for an item of a stream.
absl::StatusOr<SgemmStreamFields> DecodeSgemmStream(
    std::span<const ByteSlice> slices);

}  // namespace gemmd
