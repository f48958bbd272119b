// FP32 matrices as sums of three BF16 matrices, for the kernels that compute
// FP32 products on BF16 tensor cores.
//
// x = high + middle + low, each the nearest BF16 to what the ones before leave:
// 3 x 8 bits hold FP32's 24, so the sum is exact wherever no part over- or
// underflows, that is for 2^-110 <= |x| < 2^127, and for 0.

#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "absl/status/status.h"

struct CUstream_st;

namespace gemmd {

// What splitting a matrix found, in device memory, 0 before the split.
struct Bf16Findings {
  // The bits of the largest |x|: ordered as the values are, and above those of
  // every number for NaN.
  uint32_t largest;
  uint32_t has_tiny;  // some x is not 0 but below 2^-110
};

// Splits the row-major [rows, cols] matrix `from`. `to` has three matrices, one
// below the other, of [rows, cols] or, if `transpose`, of [cols, rows], with
// rows of `to_ld` elements; what lies between their rows is left alone.
// Asynchronous on `stream`; INTERNAL if the launch fails.
absl::Status SplitIntoBf16(const float* from, int64_t from_ld, int64_t rows,
                           int64_t cols, bool transpose, __nv_bfloat16* to,
                           int64_t to_ld, Bf16Findings* findings,
                           CUstream_st* stream);

}  // namespace gemmd
