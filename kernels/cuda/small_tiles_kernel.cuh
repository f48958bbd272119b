// The device's side of `small_tiles`: 64 threads compute 32 x 32 or 64 x 64 of
// C, 4 x 4 or 8 x 8 each, for any mixture of shapes and alignments in one
// launch. Tiles of A and B come by cp.async, which needs no registers on the
// way, three stages ahead; what is stored along k is turned on the way.
//
//   stage   t       | t+1     | t+2     | t+3
//   cp.async  [t+3] |   [t+4] |   [t+5] |   ...      one barrier a stage
//   compute   [t]   |   [t+1] |   [t+2] |   ...
//
// k is summed in order, one FMA at a time, whatever the tile: the bits of every
// step of the ladder.

#pragma once

#include <cstdint>

#include "kernels/cuda/batch_table.h"
#include "kernels/cuda/operand_tile.cuh"

namespace gemmd {

constexpr int kSmallTileThreads = 64;
constexpr int kSmallTileStepK = 16;
constexpr int kSmallTileStages = 4;

__device__ __forceinline__ void LoadFour(const float* from, float* to) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

template <int kTile, bool kTransposeA, bool kTransposeB, typename Table>
__global__ void __launch_bounds__(kSmallTileThreads, kTile == 32 ? 12 : 6)
    SmallTiles(const __grid_constant__ Table table) {
  constexpr int kStepK = kSmallTileStepK;
  constexpr int kStages = kSmallTileStages;
  constexpr TileLayout kLayoutA =
      kTransposeA ? TileLayout::kAlongOuter : TileLayout::kTurned;
  constexpr TileLayout kLayoutB =
      kTransposeB ? TileLayout::kTurned : TileLayout::kAlongOuter;
  using TileA = OperandTile<kLayoutA, kTile, kStepK>;
  using TileB = OperandTile<kLayoutB, kTile, kStepK>;
  // A warp has all rows and half of the columns, 8 lanes along m and 4 along n;
  // a thread's rows and columns lie in fours, 32 and 16 apart.
  constexpr int kPer = kTile / 8;
  __shared__ alignas(128) uint8_t ring[kStages][TileA::kBytes + TileB::kBytes];

  // What this block computes.
  const BatchShape& s = table.FindShape(blockIdx.x);
  const uint32_t tile = blockIdx.x - s.first_tile;
  const BatchPointers& product =
      table.products()[s.first_product + tile / s.tiles];
  const int64_t row = int64_t{tile % s.tiles / s.tiles_n} * kTile;
  const int64_t col = int64_t{tile % s.tiles % s.tiles_n} * kTile;

  const uint32_t ring_at = SharedOffset(ring);
  const auto stage_of = [&](int step) {
    return ring_at + step % kStages * (TileA::kBytes + TileB::kBytes);
  };
  OperandReader<kLayoutA, kTile, kStepK, kSmallTileThreads> reader_a(
      product.a + (kTransposeA ? row : row * s.lda), s.lda, s.m - row, s.k,
      s.vector_a);
  OperandReader<kLayoutB, kTile, kStepK, kSmallTileThreads> reader_b(
      product.b + (kTransposeB ? col * s.ldb : col), s.ldb, s.n - col, s.k,
      s.vector_b);
  const int steps = static_cast<int>((s.k + kStepK - 1) / kStepK);
  const auto copy = [&](int step) {
    if (step < steps) {
      reader_a.Copy(stage_of(step));
      reader_b.Copy(stage_of(step) + TileA::kBytes);
    }
    EndCopyGroup();
  };
#pragma unroll 1
  for (int step = 0; step < kStages - 1; ++step) copy(step);

  // In z-order: a 16-byte load of either operand touches each bank once.
  const int first_row = threadIdx.x / 2 % 8 * 4;
  const int first_col = threadIdx.x / 32 * (kTile / 2) +
                        (threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2) * 4;
  float sums[kPer][kPer] = {};
  for (int step = 0; step < steps; ++step) {
    AwaitCopyGroups<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before it free
    copy(step + kStages - 1);
    const uint8_t* const stage = ring[step % kStages];
    const auto* a_row = reinterpret_cast<const float*>(stage) + first_row;
    const auto* b_row =
        reinterpret_cast<const float*>(stage + TileA::kBytes) + first_col;
#pragma unroll 8
    for (int k = 0; k < kStepK; ++k) {
      float a[kPer];
      float b[kPer];
#pragma unroll
      for (int j = 0; j < kPer; j += 4) LoadFour(b_row + j * 4, b + j);
#pragma unroll
      for (int i = 0; i < kPer; i += 4) LoadFour(a_row + i * 8, a + i);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
          sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
        }
      }
      a_row += TileA::kPitch;
      b_row += TileB::kPitch;
    }
  }

  // C = alpha * sums + beta * C, by way of shared memory.
  using Sums = SharedSums<kTile>;
  static_assert(kTile * Sums::kPitch * 4 <= sizeof(ring));
  float* const shared_sums = reinterpret_cast<float*>(ring);
  AwaitCopyGroups<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      Sums::At(shared_sums, first_row + i / 4 * 32 + i % 4,
               first_col + j / 4 * 16 + j % 4) = sums[i][j];
    }
  }
  __syncthreads();
  constexpr int kFours = kTile / 4;  // of a row
  constexpr int kRowsAtOnce = kSmallTileThreads / kFours;
  const int four = threadIdx.x % kFours * 4;
  float* c = product.c + (row + threadIdx.x / kFours) * s.ldc + col + four;
  const int64_t left = s.n - col - four;
  for (int r = threadIdx.x / kFours; r < kTile && row + r < s.m;
       r += kRowsAtOnce, c += kRowsAtOnce * s.ldc) {
    if (left > 0) {
      WriteFour(c, left, Sums::Four(shared_sums, r, four), s.alpha, s.beta);
    }
  }
}

}  // namespace gemmd
