// The device's side of `skinny`: few rows against a large B.
//
// A block has up to kRows rows of C, 64 columns and a slice of k. Its four
// warps all have the whole 64 columns, and of every 32 k each takes 8: so a
// warp's thread tile is large, and what a block reads of B it reads once.
//
//            n ->  tile 0    tile 1    ...      B, a step of 32 k:
//   k   slice 0  [block 0] [block 4]            k 0..3    warp 0
//   |   slice 1  [block 1] [block 5]              4..7    warp 1
//   v   slice 2  [block 2] [block 6]              ...
//       slice 3  [block 3] [block 7]             16..19   warp 0
//
// The sums of the four warps are added in shared memory, those of the slices by
// the block of the last one, through the workspace: always in the same order,
// and one that knows nothing of the rows.

#pragma once

#include <cstdint>

#include "kernels/cuda/operand_tile.cuh"
#include "kernels/cuda/result_tile.cuh"
#include "kernels/cuda/skinny_plan.h"
#include "kernels/cuda/sm90_pipeline.cuh"

namespace gemmd {

constexpr int kSkinnyMaxRows = 64;  // of a block
constexpr int kSkinnyThreads = 128;

// A row of A, and where its row of C goes.
struct SkinnyRow {
  const float* a;
  float* c;
};

// A kernel's parameter.
struct SkinnyProblem {
  const float* b;
  int64_t ldb;
  int64_t n;
  int64_t k;
  int64_t stride_k;  // of A, from one k to the next
  float alpha;
  float beta;
  bool vector_b;  // B and its rows are 16-byte aligned

  SkinnyPlan plan;
  int64_t passes;  // each of kRows rows, the last of fewer
  // The sums of all slices but the last: for each tile and pass, for each
  // slice, [kRows][16 pieces of four]. A flag is `launch` once its slice's sums
  // are there, and 0 once they were used.
  float4* partials;
  uint64_t* flags;
  uint64_t launch;

  int64_t rows;  // in all passes
  // One pass: each row by itself. Several: row r is that many strides on.
  SkinnyRow each[kSkinnyMaxRows];
  SkinnyRow first;
  bool even;  // the rows of A are stride_a apart, in one pass too
  int64_t stride_a;
  int64_t stride_c;
};

// How kRows rows are spread over a warp, and how many stages of the ring fit
// where two blocks share a multiprocessor.
template <int kRows>
struct SkinnyShape {
  static constexpr int kLanesM = kRows >= 64 ? 8 : kRows >= 16 ? 4 : 2;
  static constexpr int kLanesN = 32 / kLanesM;
  static constexpr int kRowsPer = kRows / kLanesM;
  static constexpr int kColsPer = kSkinnyTileN / kLanesN;

  using TileA = OperandTile<TileLayout::kAlongK, kRows, kSkinnyStepK>;
  static constexpr int kBytesB = kSkinnyTileN * kSkinnyStepK * 4;
  static constexpr int kStages = 104 * 1024 / (TileA::kBytes + kBytesB);
  static constexpr int kRingBytes = kStages * (TileA::kBytes + kBytesB);
  // In shared memory, of a warp.
  using Sums = SharedSums<kSkinnyTileN>;
  static constexpr int kSumFloats = kRows * Sums::kPitch;
  // For each thread, of the 16 pieces a row.
  static constexpr int kPieces = kRows * 16 / kSkinnyThreads;
  static_assert(kSkinnyThreads / 32 * kSumFloats * 4 <= kRingBytes);

  // In z-order, so that a 16-byte load of either operand touches each bank once
  // (twice where 16 lanes lie along n).
  static __device__ __forceinline__ int LaneM() {
    return threadIdx.x / 2 % kLanesM;
  }
  static __device__ __forceinline__ int LaneN() {
    return threadIdx.x % 32 / (2 * kLanesM) * 2 + threadIdx.x % 2;
  }
};

// What a block knows of its rows, in shared memory.
template <int kRows>
struct SkinnyRows {
  const float* a[kRows];  // at the slice's first k
  float* c[kRows];        // at the tile's first column; past the last row, null
};

template <int kRows>
__device__ __forceinline__ void FindRows(SkinnyRows<kRows>& rows,
                                         const SkinnyProblem& p, int64_t pass,
                                         int64_t col, int64_t first_k) {
  const int r = threadIdx.x;
  if (r < kRows) {
    const int64_t row = pass * kRows + r;
    const bool inside = row < p.rows;
    SkinnyRow at = p.each[inside ? r : 0];
    if (inside && p.passes > 1) {
      at = {p.first.a + row * p.stride_a, p.first.c + row * p.stride_c};
    }
    rows.a[r] = at.a + first_k * p.stride_k;
    rows.c[r] = inside ? at.c + col : nullptr;
  }
  __syncthreads();
}

// Starts this thread's copies of a step of A, at `offset` in each row, with
// `k_left` inside. Eight threads have a row, each a piece of four. Rows past
// the last are left alone: what they hold only reaches sums that nobody keeps.
template <int kRows>
__device__ __forceinline__ void CopyRows(uint32_t tile,
                                         const SkinnyRows<kRows>& rows,
                                         int64_t stride_k, int64_t offset,
                                         int64_t k_left) {
  using Tile = typename SkinnyShape<kRows>::TileA;
  constexpr int kRowsAtOnce = kSkinnyThreads / Tile::kPieces;
  const int k = threadIdx.x % Tile::kPieces * 4;
  const int first = threadIdx.x / Tile::kPieces;
  const bool pieces = stride_k == 1 && k_left >= kSkinnyStepK;
  offset += k * stride_k;
#pragma unroll
  for (int i = 0; i < kRows; i += kRowsAtOnce) {
    const int row = first + i;
    if (row >= kRows || rows.c[row] == nullptr) break;
    const float* const from = rows.a[row] + offset;
    const uint32_t to = tile + Tile::Offset(row, k);
    if (pieces && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
      CopyAsync<16>(to, from);
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool inside = k + j < k_left;
      CopyAsync<4>(to + j * 4, inside ? from + j * stride_k : rows.a[row],
                   inside ? 4 : 0);
    }
  }
}

__device__ __forceinline__ void Add(float4& sum, const float4& x) {
  sum.x += x.x;
  sum.y += x.y;
  sum.z += x.z;
  sum.w += x.w;
}

// Adds to what the last slice has what the other slices left. Their sums come
// first, in the order of k.
template <int kPieces>
__device__ __forceinline__ void AddSlices(float4 (&sums)[kPieces],
                                          const SkinnyProblem& p,
                                          int64_t first_flag) {
  const int slices = p.plan.slices - 1;
  for (int s = threadIdx.x; s < slices; s += kSkinnyThreads) {
    sm90::AwaitAndClearFlag(p.flags + first_flag + s, p.launch);
  }
  __syncthreads();
  constexpr int kFours = kPieces * kSkinnyThreads;
  const float4* at = p.partials + first_flag * kFours + threadIdx.x;
  float4 total[kPieces] = {};
#pragma unroll 4
  for (int s = 0; s < slices; ++s, at += kFours) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      Add(total[i], __ldcg(at + i * kSkinnyThreads));
    }
  }
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    Add(total[i], sums[i]);
    sums[i] = total[i];
  }
}

// Leaves a slice's sums for the block of the last one.
template <int kPieces>
__device__ __forceinline__ void LeaveSlice(const float4 (&sums)[kPieces],
                                           const SkinnyProblem& p,
                                           int64_t flag) {
  float4* const at =
      p.partials + flag * (kPieces * kSkinnyThreads) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPieces; ++i) __stcg(at + i * kSkinnyThreads, sums[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) sm90::SetFlag(p.flags + flag, p.launch);
}

// The end of a block: adds the sums of its warps up, which they have left in
// shared memory, then those of the slices, and writes C.
template <int kRows>
__device__ __forceinline__ void FinishTile(const float* shared_sums,
                                           const SkinnyRows<kRows>& rows,
                                           const SkinnyProblem& p, int64_t tile,
                                           int64_t pass, int slice) {
  using Shape = SkinnyShape<kRows>;
  using Sums = typename Shape::Sums;
  constexpr int kWarps = kSkinnyThreads / 32;
  float4 pieces[Shape::kPieces];
#pragma unroll
  for (int i = 0; i < Shape::kPieces; ++i) {
    const int at = i * kSkinnyThreads + threadIdx.x;
    pieces[i] = Sums::Four(shared_sums, at / 16, at % 16 * 4);
#pragma unroll
    for (int w = 1; w < kWarps; ++w) {
      Add(pieces[i], Sums::Four(shared_sums + w * Shape::kSumFloats, at / 16,
                                at % 16 * 4));
    }
    pieces[i] = Sums::Ordered(pieces[i], at / 16);
  }

  const int64_t col = tile * kSkinnyTileN;
  const int64_t first_flag = (tile * p.passes + pass) * (p.plan.slices - 1);
  if (slice + 1 < p.plan.slices) {
    LeaveSlice(pieces, p, first_flag + slice);
    return;
  }
  if (slice > 0) AddSlices(pieces, p, first_flag);
#pragma unroll
  for (int i = 0; i < Shape::kPieces; ++i) {
    const int at = i * kSkinnyThreads + threadIdx.x;
    float* const c = rows.c[at / 16];
    const int64_t left = p.n - col - at % 16 * 4;
    if (c != nullptr && left > 0) {
      WriteFour(c + at % 16 * 4, left, pieces[i], p.alpha, p.beta);
    }
  }
}

template <int kRows, bool kTransposeB>
__global__ void __launch_bounds__(kSkinnyThreads, 2)
    Skinny(const __grid_constant__ SkinnyProblem p) {
  using Shape = SkinnyShape<kRows>;
  constexpr TileLayout kLayoutB =
      kTransposeB ? TileLayout::kAlongK : TileLayout::kAlongOuter;
  using FragmentA = OperandFragment<TileLayout::kAlongK, kRows, kSkinnyStepK,
                                    Shape::kLanesM, Shape::kRowsPer>;
  using FragmentB = OperandFragment<kLayoutB, kSkinnyTileN, kSkinnyStepK,
                                    Shape::kLanesN, Shape::kColsPer>;
  constexpr int kStages = Shape::kStages;
  constexpr int kWarps = kSkinnyThreads / 32;
  extern __shared__ float4 ring[];
  __shared__ SkinnyRows<kRows> rows;

  // What this block computes.
  const int64_t pass = blockIdx.x % p.passes;
  const int slice = static_cast<int>(blockIdx.x / p.passes % p.plan.slices);
  const int64_t tile = blockIdx.x / p.passes / p.plan.slices;
  const int64_t col = tile * kSkinnyTileN;
  const int64_t first_step = slice * p.plan.steps / p.plan.slices;
  const int64_t first_k = first_step * kSkinnyStepK;
  const int steps =
      static_cast<int>((slice + 1) * p.plan.steps / p.plan.slices - first_step);
  FindRows(rows, p, pass, col, first_k);

  // The ring: stage s holds step s, s + kStages, ...
  const uint32_t ring_b = SharedOffset(ring);
  const uint32_t ring_a = ring_b + kStages * Shape::kBytesB;
  OperandReader<kLayoutB, kSkinnyTileN, kSkinnyStepK, kSkinnyThreads, false>
      reader_b(
          p.b + (kTransposeB ? col * p.ldb + first_k : first_k * p.ldb + col),
          p.ldb, p.n - col, p.k - first_k, p.vector_b);
  const auto copy = [&](int step, int stage) {
    if (step < steps) {
      const int64_t k = int64_t{step} * kSkinnyStepK;
      reader_b.Copy(ring_b + stage * Shape::kBytesB);
      CopyRows<kRows>(ring_a + stage * Shape::TileA::kBytes, rows, p.stride_k,
                      k * p.stride_k, p.k - first_k - k);
    }
    EndCopyGroup();
  };
#pragma unroll 1
  for (int step = 0; step < kStages; ++step) copy(step, step);

  // The main loop. A warp's two fours of k of a step are loaded whole and
  // multiplied in the next round (sm90_ffma_tile.cuh says why).
  const int warp = threadIdx.x / 32;
  FragmentA a;
  FragmentB b;
  const auto load = [&](int stage, int four) {
    a.Load(ring_a + stage * Shape::TileA::kBytes, 0, Shape::LaneM(), four);
    b.Load(ring_b + stage * Shape::kBytesB, 0, Shape::LaneN(), four);
  };
  float sums[Shape::kRowsPer][Shape::kColsPer] = {};
  AwaitCopyGroups<kStages - 1>();
  __syncthreads();
  load(0, warp);
  int stage = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    MultiplyFragments<kTransposeB>(sums, a, b);
    load(stage, warp + kWarps);
    AwaitCopyGroups<kStages - 2>();
    __syncthreads();  // the next step is there, and this one's stage free
    copy(step + kStages, stage);
    if (++stage == kStages) stage = 0;
    MultiplyFragments<kTransposeB>(sums, a, b);
    if (step + 1 < steps) load(stage, warp);
  }

  // The sums of the four warps, in the place of the ring.
  using Sums = typename Shape::Sums;
  AwaitCopyGroups<0>();
  __syncthreads();
  float* const shared_sums = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int i = 0; i < Shape::kRowsPer; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kColsPer; ++j) {
      Sums::At(shared_sums + warp * Shape::kSumFloats,
               FragmentA::Index(Shape::LaneM(), 0), FragmentA::Index(0, i),
               FragmentB::Index(Shape::LaneN(), 0), FragmentB::Index(0, j)) =
          sums[i][j];
    }
  }
  __syncthreads();
  FinishTile<kRows>(shared_sums, rows, p, tile, pass, slice);
}

}  // namespace gemmd
