// One operand of a product from the wire, judged on its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/rpc/byte_stream.h"
#include "server/rpc/sgemm_fields.h"

namespace gemmd {

// What products may ask for.
struct SgemmLimits {
  // A whole request message, and a whole answer. --max-inline-bytes
  size_t max_inline_bytes = size_t{256} << 20;
  // The server keeps matrices.
  bool resident = false;
  // The call may name slices of shared memory.
  bool shared_memory = false;
};

// Part of a client's shared-memory region. Whether there is such a region, and
// whether the part lies inside, is looked up later.
struct SharedPlace {
  std::string region_id;  // empty: no such place
  uint64_t offset = 0;    // bytes; a multiple of 4
  uint64_t bytes = 0;     // from the first element to the end of the last one
};

// Where an operand is and where it goes. On the wire and in shared memory a row
// is `leading_dimension` elements after the one before; staged and resident,
// rows are packed.
struct OperandPlan {
  // One of these three: its place in the message, unless one of the others is
  // set.
  ByteRange source;
  std::string matrix_id;
  SharedPlace shared;

  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t leading_dimension = 0;
  size_t offset = 0;  // in its staging block; a multiple of 256

  bool is_inline() const {
    return matrix_id.empty() && shared.region_id.empty();
  }
  size_t packed_bytes() const { return rows * cols * sizeof(float); }
  // Of staging memory.
  size_t staged_bytes() const { return is_inline() ? packed_bytes() : 0; }
};

// rows * cols * 4; false if that is over 64 bits.
bool MatrixBytes(uint64_t rows, uint64_t cols, uint64_t* bytes);

// `name`.`field`, a number of rows or the like: below 2^63.
absl::Status CheckDimension(absl::string_view name, absl::string_view field,
                            uint64_t value);

// Where a matrix of these rows lies that begins at `slice`; its leading
// dimension is at least `cols`.
absl::StatusOr<SharedPlace> PlanShared(absl::string_view path,
                                       const SharedMemorySliceFields& slice,
                                       uint64_t rows, uint64_t cols,
                                       uint64_t leading_dimension);

// The operand `name` ("a"). Errors as of PlanSgemm.
absl::StatusOr<OperandPlan> PlanOperand(
    absl::string_view name, const std::optional<OperandFields>& operand,
    const SgemmLimits& limits);

}  // namespace gemmd
