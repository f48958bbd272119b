// Small helpers on matrices in device memory, for kernels that need an operand
// aligned or turned, or C scaled alone.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

struct CUstream_st;

namespace gemmd {

// Copies the row-major [rows, cols] matrix `from` to `to`, as [cols, rows] if
// `transpose`. Leading dimensions are in elements. Where `only_if` is not null
// and the word it points to, in device memory, is 0, does nothing. Asynchronous
// on `stream`; INTERNAL if the launch fails. Needs compute capability 9.0.
absl::Status PackMatrix(const float* from, int64_t from_ld, int64_t rows,
                        int64_t cols, bool transpose, float* to, int64_t to_ld,
                        CUstream_st* stream, const uint32_t* only_if = nullptr);

// C [m, n] = beta * C; beta == 0 writes zeros and does not read C, m or n == 0
// does nothing.
absl::Status ScaleMatrix(float* c, int64_t ldc, int64_t m, int64_t n,
                         float beta, CUstream_st* stream);

}  // namespace gemmd
