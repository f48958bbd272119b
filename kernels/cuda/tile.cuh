// How 256 threads bring a 128 x 8 tile of an operand into shared memory, and a
// thread's results into C. Every edge of every matrix is handled here.
//
// op(A) and op(B) are alike once k is told apart from the other dimension, m of
// A or n of B, called `outer` here:
//
//   A [m, k], or B [n, k] when transposed:   A [k, m] when transposed, or
//   four elements along k                    B [k, n]: four along outer
//
//              k 0..3  4..7                           outer 0..3 4..7  ...
//   outer 0    t 0     t 1                   k 0            t 0  t 1   t 31
//   outer 1    t 2     t 3                   k 1            t 32 t 33  t 63
//   ...                                      ...
//   outer 127  t 254   t 255                 k 7            t 224  ... t 255

#pragma once

#include <cstdint>

#include "kernels/cuda/find_tile.cuh"

namespace gemmd {

constexpr int kTileOuter = 128;
constexpr int kTileK = 8;
constexpr int kTileThreads = 256;
static_assert(kTileOuter * kTileK == 4 * kTileThreads,
              "each thread brings four elements");

// How much of k the first tile has, so that all others are whole: the edge of k
// is dealt with before the main loop, and the order of k is kept.
__device__ inline int FirstTileK(int64_t k) {
  return k == 0 ? 0 : static_cast<int>((k - 1) % kTileK) + 1;
}
__device__ inline int TilesAfterFirst(int64_t k) {
  return k == 0 ? 0 : static_cast<int>((k - 1) / kTileK);
}

// This thread's four elements of one operand's tiles, tile after tile along k.
//
// kVector: every four are one aligned 16-byte load, wholly inside the matrix or
// wholly outside (VariantOf in table_sgemm.cc makes sure).
template <bool kAlongK, bool kVector>
class TileReader {
 public:
  // Tiles of `x` from `origin` on, of `extent` rows along outer, of which one
  // at least is inside. Elements past the extent are read as the last ones
  // inside: they only reach rows of C that are not there.
  __device__ TileReader(const float* x, int64_t ld, int64_t origin,
                        int64_t extent)
      : ld_(ld) {
    if constexpr (kAlongK) {
      const int64_t outer = min(origin + int64_t{threadIdx.x / 2}, extent - 1);
      at_ = x + outer * ld + FirstK();
    } else {
      const int64_t outer =
          min(origin + FirstOuter(), kVector ? extent - 4 : extent - 1);
      at_ = x + FirstK() * ld + outer;
      last_ = static_cast<int>(min(int64_t{3}, extent - 1 - outer));
    }
  }

  // The first tile's elements: `count` of k from 0 on, then zeros.
  __device__ float4 ReadFirst(int count) {
    const int inside = count - FirstK();
    float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (kAlongK) {
      if (inside > 0) x.x = Element(0);
      if (inside > 1) x.y = Element(1);
      if (inside > 2) x.z = Element(2);
      if (inside > 3) x.w = Element(3);
    } else {
      if (inside > 0) x = Load();
    }
    at_ += kAlongK ? count : count * ld_;
    return x;
  }

  // The next tile's elements, all of which exist.
  __device__ float4 ReadNext() {
    const float4 x = Load();
    at_ += kAlongK ? kTileK : kTileK * ld_;
    return x;
  }

  // Puts what was read where tile[k][outer] keeps it.
  __device__ static void Write(float4 x, float (&tile)[kTileK][kTileOuter]) {
    if constexpr (kAlongK) {
      float* at = &tile[0][0] + (FirstK() * kTileOuter + threadIdx.x / 2);
      at[0 * kTileOuter] = x.x;
      at[1 * kTileOuter] = x.y;
      at[2 * kTileOuter] = x.z;
      at[3 * kTileOuter] = x.w;
    } else {
      *reinterpret_cast<float4*>(&tile[0][0] + 4 * threadIdx.x) = x;
    }
  }

  // The same for a tile[outer][k].
  __device__ static void Write(float4 x, float (&tile)[kTileOuter][kTileK]) {
    if constexpr (kAlongK) {
      *reinterpret_cast<float4*>(&tile[threadIdx.x / 2][FirstK()]) = x;
    } else {
      tile[FirstOuter() + 0][FirstK()] = x.x;
      tile[FirstOuter() + 1][FirstK()] = x.y;
      tile[FirstOuter() + 2][FirstK()] = x.z;
      tile[FirstOuter() + 3][FirstK()] = x.w;
    }
  }

 private:
  __device__ static int FirstK() {
    return kAlongK ? threadIdx.x % 2 * 4 : threadIdx.x / 32;
  }
  __device__ static int FirstOuter() { return threadIdx.x % 32 * 4; }

  __device__ float4 Load() const {
    if constexpr (kVector) {
      return __ldg(reinterpret_cast<const float4*>(at_));
    } else {
      return {Element(0), Element(1), Element(2), Element(3)};
    }
  }

  __device__ float Element(int i) const {
    return __ldg(at_ + (kAlongK || kVector ? i : min(i, last_)));
  }

  const float* at_;
  const int64_t ld_;
  int last_;  // of the four, inside along outer; unless kAlongK or kVector
};

// This CTA's tile of C, as far as it exists.
struct OutputTile {
  float* c;
  int64_t ldc;
  int rows;
  int cols;
  float alpha;
  float beta;

  __device__ OutputTile(const DeviceProblem& p, const TileOrigin& origin)
      : c(p.c + origin.row * p.ldc + origin.col),
        ldc(p.ldc),
        rows(static_cast<int>(min(p.m - origin.row, int64_t{kTileOuter}))),
        cols(static_cast<int>(min(p.n - origin.col, int64_t{kTileOuter}))),
        alpha(p.alpha),
        beta(p.beta) {}

  // C(row, col + 0..3) = alpha * sum + beta * C.
  template <bool kVector>
  __device__ void WriteFour(int row, int col, const float* sum) const {
    if (row >= rows || col >= cols) return;
    float* at = c + row * ldc + col;
    if constexpr (kVector) {
      float4* four = reinterpret_cast<float4*>(at);
      float4 old = {0.0f, 0.0f, 0.0f, 0.0f};
      if (beta != 0.0f) old = *four;
      *four = {Result(sum[0], old.x), Result(sum[1], old.y),
               Result(sum[2], old.z), Result(sum[3], old.w)};
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (col + j < cols) {
          at[j] = Result(sum[j], beta != 0.0f ? at[j] : 0.0f);
        }
      }
    }
  }

  __device__ float Result(float sum, float old) const {
    return fmaf(beta, old, alpha * sum);
  }
};

}  // namespace gemmd
