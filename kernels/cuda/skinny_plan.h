// How a product of few rows is cut among thread blocks. The cut decides in
// which order k is summed, and so the bits of the result: it follows from n, k
// and the device, and never from m, so that a row of C has the same bits
// whatever rows it is computed with.

#pragma once

#include <cstdint>

namespace gemmd {

constexpr int kSkinnyTileN = 64;  // columns of C of a block
constexpr int kSkinnyStepK = 32;  // of k, between two barriers of a block

struct SkinnyPlan {
  int64_t tiles;  // along n
  int64_t steps;  // along k
  // Along k: slice s of every tile has the steps [FirstStep(s),
  // FirstStep(s + 1)), at least one.
  int slices;

  int64_t blocks() const { return tiles * slices; }
};

// The plan for a B of [k, n], n and k > 0, on a device of `sm_count`
// multiprocessors.
SkinnyPlan PlanSkinny(int64_t n, int64_t k, int sm_count);

}  // namespace gemmd
