#include "kernels/cuda/skinny_plan.h"

#include <algorithm>

namespace gemmd {
namespace {

constexpr int kBlocksPerSm = 2;
constexpr int64_t kMaxSlices = 128;
// Beyond so many rounds of blocks the last one, half empty, costs little.
constexpr int64_t kMaxRounds = 4;

// In units of the time in which a block does a step: what a block takes to
// start and to end, and what each slice adds to the sum of them all.
constexpr double kBlockCost = 4;
constexpr double kSliceCost = 0.1;

int64_t CeilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0); }

double Cost(const SkinnyPlan& plan, int64_t slots) {
  const auto rounds = static_cast<double>(CeilDiv(plan.blocks(), slots));
  const auto steps = static_cast<double>(CeilDiv(plan.steps, plan.slices));
  return rounds * (steps + kBlockCost) + kSliceCost * plan.slices;
}

}  // namespace

SkinnyPlan PlanSkinny(int64_t n, int64_t k, int sm_count) {
  const int64_t slots = int64_t{kBlocksPerSm} * sm_count;
  SkinnyPlan best = {.tiles = CeilDiv(n, kSkinnyTileN),
                     .steps = CeilDiv(k, kSkinnyStepK),
                     .slices = 1};
  const int64_t most =
      std::min({best.steps, kMaxSlices, kMaxRounds * slots / best.tiles});
  for (SkinnyPlan plan = best; plan.slices <= most; ++plan.slices) {
    if (Cost(plan, slots) < Cost(best, slots)) best = plan;
  }
  return best;
}

}  // namespace gemmd
