// The device's side of `small_tiles`: 64 threads compute 32 x 32 or 64 x 64 of
// C, 4 x 4 or 8 x 8 each, for any mixture of shapes and alignments in one
// launch. Tiles of A and B come by cp.async, which needs no registers on the
// way, three stages ahead; a B that is stored along k is turned on the way.
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

template <int kTile, bool kTransposeA, bool kTransposeB, typename Table>
__global__ void __launch_bounds__(kSmallTileThreads, kTile == 32 ? 12 : 4)
    SmallTiles(const __grid_constant__ Table table) {
  constexpr int kStepK = kSmallTileStepK;
  constexpr int kStages = kSmallTileStages;
  // B never lies along k: operand_tile.cuh says why.
  constexpr TileLayout kLayoutA =
      kTransposeA ? TileLayout::kAlongOuter : TileLayout::kAlongK;
  constexpr TileLayout kLayoutB =
      kTransposeB ? TileLayout::kTurned : TileLayout::kAlongOuter;
  using TileA = OperandTile<kLayoutA, kTile, kStepK>;
  using TileB = OperandTile<kLayoutB, kTile, kStepK>;
  // A warp has all rows and half of the columns, 8 lanes along m and 4 along n,
  // in z-order: a 16-byte load of either operand touches each bank once.
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
  OperandReader<kLayoutA, kTile, kStepK, kSmallTileThreads, true> reader_a(
      product.a + (kTransposeA ? row : row * s.lda), s.lda, s.m - row, s.k,
      s.vector_a);
  OperandReader<kLayoutB, kTile, kStepK, kSmallTileThreads, true> reader_b(
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

  using FragmentA = OperandFragment<kLayoutA, kTile, kStepK, 8, kPer>;
  using FragmentB = OperandFragment<kLayoutB, kTile, kStepK, 4, kPer>;
  const int lane_m = threadIdx.x / 2 % 8;
  const int lane_n = threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2;
  const int warp_col = threadIdx.x / 32 * (kTile / 2);
  FragmentA a;
  FragmentB b;
  float sums[kPer][kPer] = {};
  // Fours of k, loaded whole and multiplied in the next round, which
  // sm90_ffma_tile.cuh explains.
  uint32_t stage = 0;
  const auto next_stage = [&](int step) {
    AwaitCopyGroups<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before it free
    copy(step + kStages - 1);
    stage = SharedOffset(ring[step % kStages]);
  };
  const auto load = [&](int four) {
    a.Load(stage, 0, lane_m, four);
    b.Load(stage + TileA::kBytes, warp_col, lane_n, four);
  };
  if (steps > 0) {
    next_stage(0);
    load(0);
  }
#pragma unroll 1
  for (int step = 0, four = 0; step < steps;) {
    MultiplyFragments<false>(sums, a, b);
    if (++four == kStepK / 4) {
      four = 0;
      if (++step == steps) break;
      next_stage(step);
    }
    load(four);
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
      Sums::At(shared_sums, FragmentA::Index(lane_m, i),
               warp_col + FragmentB::Index(lane_n, j)) = sums[i][j];
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
