// How a thread block (CTA) finds which tile of which problem it computes.

#pragma once

#include <cstdint>

#include "kernels/cuda/problem_table.h"

namespace gemmd {

// blockIdx.x, read anew each time: what is computed from it is computed again
// where it is used again, rather than kept in registers through a main loop.
__device__ inline uint32_t ReadBlockIndex() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
  return index;
}

// The problem that this CTA works on.
template <int kCapacity>
__device__ inline const DeviceProblem& FindProblem(
    const ProblemTable<kCapacity>& table) {
  if constexpr (kCapacity == 1) return table.problems[0];
  const uint32_t tile = ReadBlockIndex();
  int low = 0;
  int high = table.size;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.problems[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return table.problems[low];
}

// The first row and column of C of this CTA's tile.
struct TileOrigin {
  int64_t row;
  int64_t col;
};

template <int kTileM, int kTileN>
__device__ inline TileOrigin FindTile(const DeviceProblem& p) {
  const uint32_t tile = ReadBlockIndex() - p.first_tile;
  return {int64_t{tile / p.tiles_n} * kTileM,
          int64_t{tile % p.tiles_n} * kTileN};
}

}  // namespace gemmd
