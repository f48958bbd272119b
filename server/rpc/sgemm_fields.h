// A gemmd.v1.SgemmRequest as it stands on the wire, but for the operands'
// numbers: where they lie is noted instead. Nothing here has been judged yet.

#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "server/rpc/byte_stream.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {

struct SharedMemorySliceFields {
  ShortText region_id;
  uint64_t offset = 0;
};

// A resident matrix's name.
struct MatrixIdField {
  ShortText id;
};

// Of the source fields, the one that came last.
struct OperandFields {
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t leading_dimension = 0;
  std::variant<std::monostate, MatrixIdField, SharedMemorySliceFields,
               ByteRange>
      source;
};

struct DurationFields {
  int64_t seconds = 0;
  int32_t nanos = 0;
};

struct InlineOutputFields {};

struct ResidentOutputFields {
  ShortText matrix_id;
  std::optional<DurationFields> ttl;
};

struct SharedMemoryOutputFields {
  std::optional<SharedMemorySliceFields> slice;
  uint64_t leading_dimension = 0;
};

// Of the destinations, the one that came last.
using OutputFields =
    std::variant<std::monostate, InlineOutputFields, ResidentOutputFields,
                 SharedMemoryOutputFields>;

struct SgemmFields {
  bool transpose_a = false;
  bool transpose_b = false;
  std::optional<float> alpha;
  std::optional<float> beta;
  int32_t precision = 0;
  std::optional<ShortText> kernel;
  int32_t priority = 0;
  ShortText request_id;
  OutputFields output;
  std::optional<OperandFields> a;
  std::optional<OperandFields> b;
  std::optional<OperandFields> c;
};

}  // namespace gemmd
