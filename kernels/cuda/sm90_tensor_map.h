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
  int box_columns;            // at most 256; 128 bytes when swizzled
  int box_rows;               // at most 256
  // Rows of 128 bytes lie in shared memory with their 16-byte pieces permuted:
  // piece p of row r at p ^ (r % 8).
  bool swizzled;
};

// FAILED_PRECONDITION where the driver has no tensor maps; INTERNAL where it
// refuses the matrix.
absl::StatusOr<CUtensorMap> MakeTensorMap(const TensorMapSpec& spec);

}  // namespace gemmd
