// Descriptions of matrices in device memory for Hopper's copy engine.

#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace gemmd {

// A row-major matrix as stored, and the box of it that one copy brings into
// shared memory.
struct TensorMapSpec {
  const void* base;  // 16-byte aligned
  CUtensorMapDataType type;
  int element_bytes;
  int64_t columns;  // of the matrix: elements side by side in memory
  int64_t rows;
  int64_t leading_dimension;  // in elements; a multiple of 16 bytes
  int box_columns;            // at most 256; one swizzle wide when swizzled
  int box_rows;               // at most 256
  // 0, or the bytes of a row of the box: 128 or 64. Rows then lie in shared
  // memory with their 16-byte pieces permuted, so that the same piece of eight
  // rows lies in eight different places: with 128, piece p of row r is at
  // p ^ (r % 8).
  int swizzle_bytes;
};

// FAILED_PRECONDITION where the driver has no tensor maps; INTERNAL where it
// refuses the matrix.
absl::StatusOr<CUtensorMap> MakeTensorMap(const TensorMapSpec& spec);

}  // namespace gemmd
