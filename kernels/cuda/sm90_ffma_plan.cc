#include "kernels/cuda/sm90_ffma_plan.h"

#include <algorithm>

namespace gemmd {
namespace {

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

constexpr int64_t kStepK = 32;

// Microseconds on an H200, fitted to runs of every plan at 13 sizes of C.
struct ClusterCost {
  FfmaKind kind;
  int tile;
  double launch;
  double round;  // of blocks, to start and to end
  double slice;  // more a round for each slice to add up
  double step;   // of 32 along k
};
constexpr ClusterCost kClusterCosts[] = {
    {FfmaKind::kCluster128, 128, 1.0, 5.5, 0.40, 2.55},
    {FfmaKind::kCluster64, 64, 0.7, 3.5, 0.15, 0.78},
    {FfmaKind::kClusterLight, 64, 0.5, 3.4, 0.02, 0.92},
};
constexpr double kStreamKLaunch = 14.0;
constexpr double kStreamKStep = 4.95;    // two workers of an SM, a step each
constexpr double kStreamKPartial = 1.0;  // a partial sum left and added

double ClusterTime(const ClusterCost& cost, int64_t tiles, int64_t steps,
                   int slices, const FfmaDevice& device) {
  const int64_t at_once = std::max(1, device.clusters[slices]);
  const double round = cost.round + slices * cost.slice +
                       static_cast<double>(CeilDiv(steps, slices)) * cost.step;
  return cost.launch + static_cast<double>(CeilDiv(tiles, at_once)) * round;
}

double StreamKTime(int64_t m, int64_t n, int64_t steps,
                   const FfmaDevice& device) {
  const auto total =
      static_cast<double>(CeilDiv(m, 128) * CeilDiv(n, 128) * steps);
  const double each = std::max(1.0, total / (2 * device.sm_count));
  const double partials = static_cast<double>(steps) / each;
  return kStreamKLaunch + each * kStreamKStep + partials * kStreamKPartial;
}

}  // namespace

FfmaPlan PlanFfma(int64_t m, int64_t n, int64_t k, const FfmaDevice& device) {
  const int64_t steps = CeilDiv(k, kStepK);
  FfmaPlan best = {FfmaKind::kStreamK, 1};
  double best_time = StreamKTime(m, n, steps, device);
  for (const ClusterCost& cost : kClusterCosts) {
    // Past a few rounds stream-K is always ahead.
    const int64_t tiles = CeilDiv(m, cost.tile) * CeilDiv(n, cost.tile);
    if (tiles > int64_t{8} * device.sm_count) continue;
    for (int slices = 1; slices <= std::min<int64_t>(kMaxFfmaSlices, steps);
         ++slices) {
      const double time = ClusterTime(cost, tiles, steps, slices, device);
      if (time >= best_time) continue;
      best = {cost.kind, slices};
      best_time = time;
    }
  }
  return best;
}

}  // namespace gemmd
