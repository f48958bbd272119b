// From a block's sums, in the registers of its threads, to rows of C.

#pragma once

#include <cstdint>

namespace gemmd {

// C(0 .. 3) = alpha * sum + beta * C, the first `left` of which exist.
__device__ __forceinline__ void WriteFour(float* c, int64_t left,
                                          const float4& sum, float alpha,
                                          float beta) {
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  float old[4] = {};
  if (left >= 4 && reinterpret_cast<uintptr_t>(c) % 16 == 0) {
    float4* const four = reinterpret_cast<float4*>(c);
    if (beta != 0) *reinterpret_cast<float4*>(old) = *four;
    *four = {fmaf(beta, old[0], alpha * sums[0]),
             fmaf(beta, old[1], alpha * sums[1]),
             fmaf(beta, old[2], alpha * sums[2]),
             fmaf(beta, old[3], alpha * sums[3])};
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= left) break;
    if (beta != 0) old[j] = c[j];
    c[j] = fmaf(beta, old[j], alpha * sums[j]);
  }
}

// A block's sums on their way through shared memory, so that whole rows are
// written to C. Each is stored by itself: written as they are, 16 bytes at a
// time, sums would have registers in the banks of the elements of B that they
// are multiplied up from. A column is XORed with what follows from the row, so
// that the 32 sums that a warp stores at once, of rows next to each other or
// four apart, lie in 32 banks (two in each where 16 lanes lie along n).
template <int kCols>
struct SharedSums {
  static constexpr int kPitch = (kCols + 31) / 32 * 32;

  // The sum of row `lane_row + row` and column `lane_col + col`, where neither
  // addition carries: the first follow from the thread and the second from the
  // sum, so that a thread computes eight addresses for all of its sums.
  static __device__ __forceinline__ float& At(float* sums, int lane_row,
                                              int row, int lane_col, int col) {
    const int lane = lane_col ^ Turn(lane_row) ^ Move(lane_row);
    const int sum = col ^ Turn(row) ^ Move(row);
    return sums[lane_row * kPitch + (lane ^ (sum & 31)) + row * kPitch +
                (sum & ~31)];
  }
  // Of the columns from `col` on, a multiple of 4, in the order in which they
  // lie there, which is the same for all columns of a row.
  static __device__ __forceinline__ float4 Four(const float* sums, int row,
                                                int col) {
    return *reinterpret_cast<const float4*>(sums + row * kPitch +
                                            (col ^ Move(row)));
  }
  // The same in the order of columns.
  static __device__ __forceinline__ float4 Ordered(const float4& x, int row) {
    const float4 y = Turn(row) & 1 ? float4{x.y, x.x, x.w, x.z} : x;
    return Turn(row) & 2 ? float4{y.z, y.w, y.x, y.y} : y;
  }

 private:
  static __device__ __forceinline__ int Turn(int row) {
    return (row ^ row >> 3) & 3;
  }
  static __device__ __forceinline__ int Move(int row) {
    return (row >> 2 & 1) * 16;
  }
};

}  // namespace gemmd
