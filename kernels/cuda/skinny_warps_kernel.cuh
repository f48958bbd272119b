// `skinny` with a ring for each warp: no warp waits for another before the end.
//
// As in skinny_kernel.cuh a block has up to kRows rows, 64 columns and a slice
// of k, and each of its four warps all of them for a quarter of k. Here a warp
// copies what it multiplies itself, 16 k at a time, and so needs no barrier of
// the block's:
//
//                    B, a slice:   k 0..15    warp 0, its chunk 0
//                                   16..31    warp 1
//                                   32..47    warp 2
//                                   48..63    warp 3
//                                   64..79    warp 0, its chunk 1
//                                     ...
//
// While one warp waits for its fragments from shared memory, which its four
// sub-partitions can deliver no faster than three quarters of the FMAs take,
// others multiply; after a barrier all four would load at once.

#pragma once

#include <cstdint>

#include "kernels/cuda/operand_tile.cuh"
#include "kernels/cuda/skinny_kernel.cuh"
#include "kernels/cuda/skinny_plan.h"

namespace gemmd {

template <int kRows>
struct SkinnyWarpsShape {
  using Lanes = SkinnyShape<kRows>;
  static constexpr int kChunkK = 16;
  static constexpr int kWarps = kSkinnyThreads / 32;
  static constexpr int kAdvanceK = kWarps * kChunkK;  // to a warp's next chunk

  using TileA = OperandTile<TileLayout::kAlongK, kRows, kChunkK>;
  static constexpr int kBytesB = kSkinnyTileN * kChunkK * 4;
  static constexpr int kStageBytes = TileA::kBytes + kBytesB;
  // Two blocks share a multiprocessor.
  static constexpr int kStages = 104 * 1024 / kWarps / kStageBytes;
  static constexpr int kWarpBytes = kStages * kStageBytes;
  static constexpr int kRingBytes = kWarps * kWarpBytes;
  static_assert(kStages >= 3 && kWarps * Lanes::kSumFloats * 4 <= kRingBytes);
};

// Starts this lane's copies of a warp's chunk of A, of which `k_left` k are
// inside, `offset` from the rows' starts. Four lanes have a row, each a piece
// of four. `pieces`: they are 16-byte aligned. `stride`: of all kRows rows, or
// 0 where they lie anywhere.
template <int kRows>
__device__ __forceinline__ void CopyChunkOfRows(
    uint32_t tile, const SkinnyRows<kRows>& rows, int row_count, bool pieces,
    int64_t stride, int64_t stride_k, int64_t offset, int64_t k_left) {
  using Shape = SkinnyWarpsShape<kRows>;
  const int k = threadIdx.x % 4 * 4;
  const int first = threadIdx.x % 32 / 4;
  const uint32_t to = tile + Shape::TileA::Offset(first, k);
  offset += k * stride_k;
  if (pieces && k_left >= Shape::kChunkK) {
    if (stride != 0) {
      const float* from = rows.a[first] + offset;
#pragma unroll
      for (int i = 0; i < kRows; i += 8) {
        CopyAsync<16>(to + i * (Shape::kChunkK * 4), from);
        from += 8 * stride;
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kRows; i += 8) {
      if (first + i >= row_count) break;
      CopyAsync<16>(to + i * (Shape::kChunkK * 4), rows.a[first + i] + offset);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; first + i < row_count && i < kRows; i += 8) {
    const float* const from = rows.a[first + i] + offset;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool inside = k + j < k_left;
      CopyAsync<4>(to + i * (Shape::kChunkK * 4) + j * 4,
                   inside ? from + j * stride_k : rows.a[first + i],
                   inside ? 4 : 0);
    }
  }
}

// The same of a chunk of B, which begins at `b`, with `n_left` columns and
// `k_left` k inside. What is past k arrives as zeros, what is past n as
// anything inside, since it only reaches columns of C that are not there.
template <bool kAlongK>
__device__ __forceinline__ void CopyChunkOfB(uint32_t tile, const float* b,
                                             int64_t ldb, bool vector,
                                             int64_t n_left, int64_t k_left) {
  constexpr int kK = 16;
  using Tile =
      OperandTile<kAlongK ? TileLayout::kAlongK : TileLayout::kAlongOuter,
                  kSkinnyTileN, kK>;
  constexpr int kAcross = kAlongK ? kK : kSkinnyTileN;  // along the rows of B
  constexpr int kDown = kAlongK ? kSkinnyTileN : kK;
  const int lane = threadIdx.x % 32;
  const bool whole = n_left >= kSkinnyTileN && k_left >= kK;
  if (whole && vector) {
    constexpr int kPieces = kAcross / 4;
    constexpr int kStride = 32 / kPieces;
    const int across = lane % kPieces * 4;
    const int down = lane / kPieces;
    const uint32_t to = tile + (kAlongK ? Tile::Offset(down, across)
                                        : Tile::Offset(across, down));
    const float* from = b + down * ldb + across;
#pragma unroll
    for (int i = 0; i < kDown; i += kStride) {
      CopyAsync<16>(to + i * (kAcross * 4), from);
      from += kStride * ldb;
    }
    return;
  }
  // Elements; two rows at a time, or half a one.
  constexpr int kAtOnce = kAlongK ? kAcross : 32;
  constexpr int kStride = 32 / kAtOnce;
#pragma unroll 1
  for (int part = 0; part < kAcross; part += kAtOnce) {
    const int across = part + lane % kAtOnce;
    const int across_inside =
        kAlongK
            ? across
            : min(across, static_cast<int>(min(n_left, int64_t{kAcross})) - 1);
#pragma unroll 8
    for (int i = 0; i < kDown; i += kStride) {
      const int down = i + lane / kAtOnce;
      const int down_inside =
          kAlongK ? min(down, static_cast<int>(min(n_left, int64_t{kDown})) - 1)
                  : down;
      const bool inside = (kAlongK ? across : down) < k_left;
      CopyAsync<4>(tile + (kAlongK ? Tile::Offset(down, across)
                                   : Tile::Offset(across, down)),
                   inside ? b + down_inside * ldb + across_inside : b,
                   inside ? 4 : 0);
    }
  }
}

// Whether all rows are 16-byte aligned, and k runs along them. Of all threads.
template <int kRows>
__device__ __forceinline__ bool RowsAreAligned(const SkinnyRows<kRows>& rows,
                                               int row_count,
                                               int64_t stride_k) {
  const int r = threadIdx.x;
  const bool aligned =
      r >= row_count || reinterpret_cast<uintptr_t>(rows.a[r]) % 16 == 0;
  return __syncthreads_and(aligned) != 0 && stride_k == 1;
}

template <int kRows, bool kTransposeB>
__global__ void __launch_bounds__(kSkinnyThreads, 2)
    SkinnyWarps(const __grid_constant__ SkinnyProblem p) {
  using Shape = SkinnyWarpsShape<kRows>;
  using Lanes = SkinnyShape<kRows>;
  constexpr int kChunkK = Shape::kChunkK;
  constexpr int kStages = Shape::kStages;
  constexpr TileLayout kLayoutB =
      kTransposeB ? TileLayout::kAlongK : TileLayout::kAlongOuter;
  using FragmentA = OperandFragment<TileLayout::kAlongK, kRows, kChunkK,
                                    Lanes::kLanesM, Lanes::kRowsPer>;
  using FragmentB = OperandFragment<kLayoutB, kSkinnyTileN, kChunkK,
                                    Lanes::kLanesN, Lanes::kColsPer>;
  extern __shared__ float4 ring[];
  __shared__ SkinnyRows<kRows> rows;

  // What this block computes.
  const int64_t pass = blockIdx.x % p.passes;
  const int slice = static_cast<int>(blockIdx.x / p.passes % p.plan.slices);
  const int64_t tile = blockIdx.x / p.passes / p.plan.slices;
  const int64_t col = tile * kSkinnyTileN;
  const int64_t first_step = slice * p.plan.steps / p.plan.slices;
  const int64_t last_step = (slice + 1) * p.plan.steps / p.plan.slices;
  const int64_t first_k = first_step * kSkinnyStepK;
  const int64_t end_k = min(last_step * kSkinnyStepK, p.k);
  const int row_count =
      static_cast<int>(min(p.rows - pass * kRows, int64_t{kRows}));
  FindRows(rows, p, pass, col, first_k);
  const bool pieces = RowsAreAligned(rows, row_count, p.stride_k);
  // Where B lies along k there is no register for it.
  const int64_t stride =
      !kTransposeB && p.even && row_count == kRows ? p.stride_a : 0;

  // This warp's chunks, and its ring: stage s holds chunk s, s + kStages, ...
  const int warp = threadIdx.x / 32;
  const int64_t warp_k = warp * kChunkK;  // from first_k on
  const int chunks = static_cast<int>(
      (end_k - first_k - warp_k + Shape::kAdvanceK - 1) / Shape::kAdvanceK);
  const uint32_t ring_b = SharedOffset(ring) + warp * Shape::kWarpBytes;
  const uint32_t ring_a = ring_b + kStages * Shape::kBytesB;
  const auto copy = [&](int chunk, int stage) {
    if (chunk < chunks) {
      const int64_t k = warp_k + int64_t{chunk} * Shape::kAdvanceK;
      const int64_t k_left = p.k - first_k - k;
      const int64_t from_k = first_k + k;
      CopyChunkOfB<kTransposeB>(
          ring_b + stage * Shape::kBytesB,
          p.b + (kTransposeB ? col * p.ldb + from_k : from_k * p.ldb + col),
          p.ldb, p.vector_b, p.n - col, k_left);
      CopyChunkOfRows<kRows>(ring_a + stage * Shape::TileA::kBytes, rows,
                             row_count, pieces, stride, p.stride_k,
                             k * p.stride_k, k_left);
    }
    EndCopyGroup();
  };
#pragma unroll 1
  for (int chunk = 0; chunk < kStages; ++chunk) copy(chunk, chunk);

  // The main loop: four k are loaded whole and multiplied in the next round
  // (sm90_ffma_tile.cuh says why).
  FragmentA a;
  FragmentB b;
  const auto load = [&](int stage, int four) {
    a.Load(ring_a + stage * Shape::TileA::kBytes, 0, Lanes::LaneM(), four);
    b.Load(ring_b + stage * Shape::kBytesB, 0, Lanes::LaneN(), four);
  };
  float sums[Lanes::kRowsPer][Lanes::kColsPer] = {};
  AwaitCopyGroups<kStages - 1>();
  __syncwarp();
  load(0, 0);
  int stage = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
#pragma unroll 1
    for (int four = 1; four < kChunkK / 4; ++four) {
      MultiplyFragments<kTransposeB>(sums, a, b);
      load(stage, four);
    }
    MultiplyFragments<kTransposeB>(sums, a, b);
    // Here no fragment is held: copying, in the middle of the loop above, would
    // take the registers that let sums and fragments lie in different banks.
    AwaitCopyGroups<kStages - 2>();
    __syncwarp();  // the next chunk is there, and this one's stage free
    copy(chunk + kStages, stage);
    if (++stage == kStages) stage = 0;
    if (chunk + 1 < chunks) load(stage, 0);
  }

  // The sums of the four warps, in the place of the rings.
  using Sums = typename Lanes::Sums;
  AwaitCopyGroups<0>();
  __syncthreads();
  float* const shared_sums = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int i = 0; i < Lanes::kRowsPer; ++i) {
#pragma unroll
    for (int j = 0; j < Lanes::kColsPer; ++j) {
      Sums::At(shared_sums + warp * Lanes::kSumFloats,
               FragmentA::Index(Lanes::LaneM(), 0), FragmentA::Index(0, i),
               FragmentB::Index(Lanes::LaneN(), 0), FragmentB::Index(0, j)) =
          sums[i][j];
    }
  }
  __syncthreads();
  FinishTile<kRows>(shared_sums, rows, p, tile, pass, slice);
}

}  // namespace gemmd
