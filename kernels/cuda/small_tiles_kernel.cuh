// The device's side of `small_tiles`: one or two warps compute a tile of C,
// from 16 x 16 to 64 x 128 (small_tiles_plan.h), for any mixture of shapes and
// alignments in one launch. Tiles of A and B come by cp.async, which needs no
// registers on the way, three stages ahead; a B that is stored along k is
// turned on the way.
//
//   stage   t       | t+1     | t+2     | t+3
//   cp.async  [t+3] |   [t+4] |   [t+5] |   ...      one barrier a stage
//   compute   [t]   |   [t+1] |   [t+2] |   ...
//
// k is summed in order, one FMA at a time, whatever the tile: the bits of every
// step of the ladder.

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/batch_table.h"
#include "kernels/cuda/operand_tile.cuh"
#include "kernels/cuda/result_tile.cuh"

namespace gemmd {

constexpr int kSmallTileStepK = 16;
constexpr int kSmallTileStages = 4;

// A block's tile of C: kM x kN. Each of kWarps warps has all rows and a part of
// the columns, 8 lanes along m and 4 along n, in z-order: a 16-byte load of
// either operand touches each bank once. kBlocks share a multiprocessor.
template <int kM, int kN, int kWarps, int kBlocks>
struct SmallTileShape {
  static constexpr int kTileM = kM;
  static constexpr int kTileN = kN;
  static constexpr int kWarpCols = kN / kWarps;
  static constexpr int kRowsPer = kM / 8;  // of a thread
  static constexpr int kColsPer = kWarpCols / 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = kBlocks;
};

template <typename Shape, bool kTransposeA, bool kTransposeB, typename Table>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    SmallTiles(const __grid_constant__ Table table) {
  constexpr int kStepK = kSmallTileStepK;
  constexpr int kTileM = Shape::kTileM;
  constexpr int kTileN = Shape::kTileN;
  constexpr int kThreads = Shape::kThreads;
  // B never lies along k: operand_tile.cuh says why.
  constexpr TileLayout kLayoutA =
      kTransposeA ? TileLayout::kAlongOuter : TileLayout::kAlongK;
  constexpr TileLayout kLayoutB =
      kTransposeB ? TileLayout::kTurned : TileLayout::kAlongOuter;
  using TileA = OperandTile<kLayoutA, kTileM, kStepK>;
  using TileB = OperandTile<kLayoutB, kTileN, kStepK>;
  using Sums = SharedSums<kTileN>;
  constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  // Devices older than sm_90 have 48 KiB for a kernel that asks for no more.
#if __CUDA_ARCH__ >= 900
  constexpr int kStages = kSmallTileStages;
#else
  constexpr int kStages =
      kSmallTileStages - (kSmallTileStages * kStageBytes > 48 * 1024);
#endif
  __shared__ alignas(128)
      uint8_t ring[std::max(kStages * kStageBytes, kTileM * Sums::kPitch * 4)];
  // The Launch's next launch may fill what this one leaves free (older devices
  // have no such launches).
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  // What this block computes.
  const BatchShape& s = table.FindShape(blockIdx.x);
  const uint32_t tile = blockIdx.x - s.first_tile;
  const BatchEntry product = table.Product(s, tile / s.tiles);
  const int64_t row = int64_t{tile % s.tiles / s.tiles_n} * kTileM;
  const int64_t col = int64_t{tile % s.tiles % s.tiles_n} * kTileN;

  const uint32_t ring_at = SharedOffset(ring);
  const auto stage_of = [&](int step) {
    return ring_at + step % kStages * kStageBytes;
  };
  OperandReader<kLayoutA, kTileM, kStepK, kThreads, true> reader_a(
      reinterpret_cast<const float*>(product.a) +
          (kTransposeA ? row : row * s.lda),
      s.lda, s.m - row, s.k, s.vector_a);
  OperandReader<kLayoutB, kTileN, kStepK, kThreads, true> reader_b(
      reinterpret_cast<const float*>(product.b) +
          (kTransposeB ? col * s.ldb : col),
      s.ldb, s.n - col, s.k, s.vector_b);
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

  constexpr int kRows = Shape::kRowsPer;
  constexpr int kCols = Shape::kColsPer;
  using FragmentA = OperandFragment<kLayoutA, kTileM, kStepK, 8, kRows>;
  using FragmentB = OperandFragment<kLayoutB, kTileN, kStepK, 4, kCols>;
  const int lane_m = threadIdx.x / 2 % 8;
  const int lane_n = threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2;
  const int warp_col = threadIdx.x / 32 * Shape::kWarpCols;
  FragmentA a;
  FragmentB b;
  float sums[kRows][kCols] = {};
  // Fours of k, loaded whole and multiplied in the next round, which
  // sm90_ffma_tile.cuh explains. A step that is copied meanwhile is begun where
  // no fragment is held.
  const auto load = [&](uint32_t stage, int four) {
    a.Load(stage, 0, lane_m, four);
    b.Load(stage + TileA::kBytes, warp_col, lane_n, four);
  };
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    AwaitCopyGroups<kStages - 2>();
    __syncthreads();  // the stage is there, and the one before it free
    copy(step + kStages - 1);
    const uint32_t stage = stage_of(step);
    const int fours = static_cast<int>(
        min(s.k - int64_t{step} * kStepK + 3, int64_t{kStepK}) / 4);
    load(stage, 0);
#pragma unroll 1
    for (int four = 1; four < fours; ++four) {
      MultiplyFragments<false>(sums, a, b);
      load(stage, four);
    }
    MultiplyFragments<false>(sums, a, b);
  }

  // C = alpha * sums + beta * C, by way of shared memory.
  float* const shared_sums = reinterpret_cast<float*>(ring);
  AwaitCopyGroups<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
      Sums::At(shared_sums, FragmentA::Index(lane_m, 0), FragmentA::Index(0, i),
               warp_col + FragmentB::Index(lane_n, 0), FragmentB::Index(0, j)) =
          sums[i][j];
    }
  }
  __syncthreads();
  constexpr int kFours = kTileN / 4;  // of a row
  constexpr int kRowsAtOnce = kThreads / kFours;
  const int four = threadIdx.x % kFours * 4;
  const int first = threadIdx.x / kFours;
  float* c =
      reinterpret_cast<float*>(product.c) + (row + first) * s.ldc + col + four;
  const int64_t left = s.n - col - four;
  if (left > 0 && first < kRowsAtOnce) {
    for (int r = first; r < kTileM && row + r < s.m;
         r += kRowsAtOnce, c += kRowsAtOnce * s.ldc) {
      const float4 sum = Sums::Four(shared_sums, r, four);
      WriteFour(c, left, Sums::Ordered(sum, r), s.alpha, s.beta);
    }
  }
  // What follows this launch waits for the one before it too.
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gemmd
