// The 8 x 8 elements of C that a thread of a 128 x 128 tile has from step 2 on:
// four 4 x 4 quadrants, 64 rows and 64 columns apart.
//
//            col 4x..4x+3    col 64+4x..
//   row 4y   +-------+       +-------+
//   ..4y+3   | 4 x 4 |       | 4 x 4 |      thread t = 16 y + x
//            +-------+       +-------+
//   row 64   +-------+       +-------+
//   +4y..    | 4 x 4 |       | 4 x 4 |
//            +-------+       +-------+
//
// With both tiles kept as [k][outer], its 8 elements of A are two 16-byte loads
// and its 8 of B two more. The 16 threads of a row of threads read 256
// neighbouring bytes of B, and share one address of A, so that a warp's loads
// conflict in no bank.

#pragma once

#include <cstdint>

#include "kernels/cuda/tile.cuh"

namespace gemmd {

constexpr int kQuadrant = 4;
constexpr int kQuadrantGap = kTileOuter / 2;
constexpr int kThreadsPerRow = kQuadrantGap / kQuadrant;
static_assert(kThreadsPerRow * kThreadsPerRow == kTileThreads);

class Quadrants {
 public:
  // Adds the product of two tiles, in the order of k.
  __device__ void Add(const float (&a_tile)[kTileK][kTileOuter],
                      const float (&b_tile)[kTileK][kTileOuter]) {
    const int row = threadIdx.x / kThreadsPerRow * kQuadrant;
    const int col = threadIdx.x % kThreadsPerRow * kQuadrant;
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
      float a[2 * kQuadrant];
      float b[2 * kQuadrant];
      Load(&b_tile[k][col], b);
      Load(&a_tile[k][row], a);
#pragma unroll
      for (int i = 0; i < 2 * kQuadrant; ++i) {
#pragma unroll
        for (int j = 0; j < 2 * kQuadrant; ++j) {
          sum_[i][j] = fmaf(a[i], b[j], sum_[i][j]);
        }
      }
    }
  }

  template <bool kVector>
  __device__ void Write(const OutputTile& output) const {
    const int row = threadIdx.x / kThreadsPerRow * kQuadrant;
    const int col = threadIdx.x % kThreadsPerRow * kQuadrant;
#pragma unroll
    for (int i = 0; i < 2 * kQuadrant; ++i) {
      const int c_row = row + i % kQuadrant + i / kQuadrant * kQuadrantGap;
      output.WriteFour<kVector>(c_row, col, &sum_[i][0]);
      output.WriteFour<kVector>(c_row, col + kQuadrantGap, &sum_[i][kQuadrant]);
    }
  }

 private:
  // The four at `tile` and the four kQuadrantGap after it.
  __device__ static void Load(const float* tile, float (&x)[2 * kQuadrant]) {
    const float4 low = *reinterpret_cast<const float4*>(tile);
    const float4 high = *reinterpret_cast<const float4*>(tile + kQuadrantGap);
    x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
    x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
  }

  float sum_[2 * kQuadrant][2 * kQuadrant] = {};
};

}  // namespace gemmd
