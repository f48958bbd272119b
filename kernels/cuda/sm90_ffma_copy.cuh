// Fills the ring of an sm90 FP32 kernel (sm90_ffma_tile.cuh) with operands that
// the copy engine does not take: rows that are not 16-byte aligned, and B
// stored along k. Element by element, asynchronously; costs the computing warps
// a few issue slots, and a small product no launch to bring its operands into
// form.

#pragma once

#include <cstdint>

#include "kernels/cuda/sm90_ffma_tile.cuh"

namespace gemmd::sm90 {

struct FfmaOperands {
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  int k;
  bool transpose_b;
};

constexpr int kFfmaCopyThreads = 128;

// Copies *from to shared memory, or writes 0 where it is not `inside`; `valid`
// may be read in any case.
__device__ __forceinline__ void CopyElement(uint32_t to, const float* from,
                                            const float* valid, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(inside ? from : valid), "r"(inside ? 4 : 0)
               : "memory");
}

// Lets a barrier's phase end only after this thread's copies have come.
__device__ __forceinline__ void ArriveWhenCopied(uint32_t barrier) {
  asm volatile(
      "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
      : "memory");
}

// A tile [kFfmaTileK][kWidth] of a matrix whose rows run along it, rows of
// shared memory kRow floats apart. `thread`: 0 .. kFfmaCopyThreads - 1.
template <int kWidth, int kRow>
__device__ __forceinline__ void CopyAcross(uint32_t to, const float* x,
                                           int64_t ld, int k0, int k,
                                           int origin, int extent, int thread) {
  constexpr int kStep = kFfmaCopyThreads / kWidth;
  static_assert(kFfmaCopyThreads % kWidth == 0);
  const int row = thread / kWidth;
  const int col = thread % kWidth;
  const bool col_inside = origin + col < extent;
  const float* from = x + (k0 + row) * ld + origin + col;
  to += (row * kRow + col) * 4;
#pragma unroll
  for (int i = 0; i < kFfmaTileK; i += kStep, from += kStep * ld) {
    CopyElement(to + i * kRow * 4, from, x, col_inside && k0 + row + i < k);
  }
}

// B's tile where B is stored along k: turned on the way. 8 lanes lie along k
// and 4 along n; with rows padded by four floats they write to 32 banks.
template <int kWidth, int kRow>
__device__ __forceinline__ void CopyTurned(uint32_t to, const float* x,
                                           int64_t ld, int k0, int k,
                                           int origin, int extent, int thread) {
  static_assert(kRow % 32 == 4);
  const int row = thread % 8;
  const int col = thread / 8;  // 0 .. 15
  const float* from = x + (origin + col) * ld + k0 + row;
  to += (row * kRow + col) * 4;
#pragma unroll
  for (int j = 0; j < kWidth; j += kFfmaCopyThreads / 8) {
    const bool col_inside = origin + col + j < extent;
#pragma unroll
    for (int i = 0; i < kFfmaTileK; i += 8) {
      CopyElement(to + (i * kRow + j) * 4, from + i, x,
                  col_inside && k0 + row + i < k);
    }
    from += kFfmaCopyThreads / 8 * ld;
  }
}

// A's tile [kRows][kFfmaTileK] along k, swizzled as the copy engine does it.
template <int kRows>
__device__ __forceinline__ void CopySwizzled(uint32_t to, const float* x,
                                             int64_t ld, int k0, int k,
                                             int origin, int extent,
                                             int thread) {
  constexpr int kStep = kFfmaCopyThreads / 32;
  const int lane = thread % 32;
  const int row = thread / 32;
  const bool k_inside = k0 + lane < k;
  const float* from = x + (origin + row) * ld + k0 + lane;
#pragma unroll
  for (int i = 0; i < kRows; i += kStep, from += kStep * ld) {
    const int r = row + i;
    CopyElement(to + r * 128 + ((lane / 4 ^ r % 8) * 16) + lane % 4 * 4, from,
                x, k_inside && origin + r < extent);
  }
}

// The kFfmaCopyThreads threads that fill: as FfmaRing::Fill.
template <LayoutA kLayoutA, typename Tile, int kStages>
__device__ __forceinline__ void CopyFill(
    const FfmaRing<Tile, kStages, kFfmaCopyThreads>& ring,
    RingPosition<kStages>& at, const FfmaOperands& x, int rows, int columns,
    int m, int n, int first, int last) {
  const int thread = threadIdx.x % kFfmaCopyThreads;
  for (int step = first; step < last; ++step, at.Advance()) {
    const auto stage = ring.AwaitEmpty(at);
    const int k = step * kFfmaTileK;
    if constexpr (kLayoutA == LayoutA::kAlongK) {
      CopySwizzled<Tile::kTileM>(stage.a, x.a, x.lda, k, x.k, m, rows, thread);
    } else {
      CopyAcross<Tile::kTileM, Tile::kTileM>(stage.a, x.a, x.lda, k, x.k, m,
                                             rows, thread);
    }
    if (x.transpose_b) {
      CopyTurned<Tile::kTileN, Tile::kRowB>(stage.b, x.b, x.ldb, k, x.k, n,
                                            columns, thread);
    } else {
      CopyAcross<Tile::kTileN, Tile::kRowB>(stage.b, x.b, x.ldb, k, x.k, n,
                                            columns, thread);
    }
    ArriveWhenCopied(stage.full);
  }
}

}  // namespace gemmd::sm90
