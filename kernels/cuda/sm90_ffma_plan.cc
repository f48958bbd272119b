#include "kernels/cuda/sm90_ffma_plan.h"

#include <algorithm>

namespace gemmd {
namespace {

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

constexpr int64_t kStepK = 32;

// Microseconds on an H200, fitted to runs of every plan
// (tests/bench/ffma_plans measures, fit_plans.py beside it fits).
struct ClusterCost {
  FfmaKind kind;
  int tile;
  double round;    // of blocks, to start and to end
  double slice;    // more a round for each slice to add up
  double step;     // of 32 along k, a block that has an SM to itself
  double busy;     // the same for each of the blocks that share an SM
  double traffic;  // for a MiB that the blocks read
};
constexpr ClusterCost kClusterCosts[] = {
    {FfmaKind::kCluster128, 128, 6.74, 0.374, 2.47, 0.84, 0.021},
    {FfmaKind::kCluster96, 96, 4.87, 0.222, 1.47, 0.64, 0.021},
    {FfmaKind::kCluster64, 64, 3.49, 0.083, 0.748, 0.748, 0.021},
    {FfmaKind::kClusterLight, 64, 3.43, 0.011, 0.864, 0.743, 0.039},
    {FfmaKind::kCluster32, 32, 2.65, 0.046, 0.245, 0.204, 0.012},
    {FfmaKind::kCopy64, 64, 3.53, 0.086, 0.861, 0.861, 0.035},
    {FfmaKind::kCopyLight, 64, 3.44, 0.000, 0.981, 0.868, 0.035},
    {FfmaKind::kCopy32, 32, 2.84, 0.010, 0.326, 0.305, 0.023},
};
constexpr double kStreamKLaunch = 7.25;
constexpr double kStreamKStep = 5.12;     // two workers of an SM, a step each
constexpr double kStreamKPartial = 1.26;  // a partial sum left and added
// Of operands that the copy engine does not take: to bring one into form.
constexpr double kFormLaunch = 1.87;
constexpr double kFormElement = 2.23e-6;

// How many blocks share the busiest SM where each SM has room for `most` of
// them and `load` of them on average. Clusters are stacked while SMs elsewhere
// are idle.
int OnAnSm(double load, int slices, int most) {
  if (load <= 1) return 1;
  return std::min(most, load <= (slices == 1 ? 1.7 : 1.25) ? 2 : 3);
}

double ClusterTime(const ClusterCost& cost, const FfmaProduct& p, int slices,
                   const FfmaDevice& device) {
  const int64_t tiles = CeilDiv(p.m, cost.tile) * CeilDiv(p.n, cost.tile);
  const int64_t steps = CeilDiv(p.k, kStepK);
  const int64_t at_once = std::max(1, device.Clusters(cost.kind, slices));
  const int most = std::max(1, device.Clusters(cost.kind, 1) / device.sm_count);
  const auto round = [&](int on_an_sm) {
    return cost.round + slices * cost.slice +
           static_cast<double>(CeilDiv(steps, slices)) *
               std::max(cost.step, on_an_sm * cost.busy);
  };
  const double mebibytes = static_cast<double>(tiles * steps) *
                           (8.0 * static_cast<double>(cost.tile * kStepK)) /
                           0x1p20;
  const int64_t full_rounds = tiles / at_once;
  const auto rounds = static_cast<double>(full_rounds);
  double time = mebibytes * cost.traffic + rounds * round(most);
  if (const int64_t rest = tiles % at_once; rest > 0) {
    // kCluster128 has an SM to itself: as many as fit without sharing.
    const double load =
        static_cast<double>(rest) /
        std::max(1, device.Clusters(FfmaKind::kCluster128, slices));
    const int alone = load < 0.125 ? 1 : most;
    time += round(rounds > 0 ? alone : OnAnSm(load, slices, most));
  }
  return time;
}

double StreamKTime(const FfmaProduct& p, const FfmaDevice& device) {
  const auto steps = static_cast<double>(CeilDiv(p.k, kStepK));
  const double total =
      static_cast<double>(CeilDiv(p.m, 128) * CeilDiv(p.n, 128)) * steps;
  const double each = std::max(1.0, total / (2 * device.sm_count));
  return kStreamKLaunch + each * kStreamKStep + steps / each * kStreamKPartial;
}

double FormTime(const FfmaProduct& p) {
  return kFormLaunch * p.unfit_operands +
         kFormElement * static_cast<double>(p.unfit_elements);
}

// Whether slices of that number are worth a thought.
bool IsEligible(const ClusterCost& cost, int slices, const FfmaDevice& device) {
  // Where blocks can share an SM, clusters of an odd number of blocks do, even
  // while others are idle.
  const bool may_share = device.Clusters(cost.kind, 1) > device.sm_count;
  return slices == 1 || slices % 2 == 0 || !may_share;
}

}  // namespace

double FfmaTime(const FfmaProduct& p, FfmaPlan plan, const FfmaDevice& device) {
  const double form = CopiesOperands(plan.kind) ? 0 : FormTime(p);
  if (plan.kind == FfmaKind::kStreamK) return form + StreamKTime(p, device);
  const auto cost =
      std::ranges::find(kClusterCosts, plan.kind, &ClusterCost::kind);
  return form + ClusterTime(*cost, p, plan.slices, device);
}

FfmaPlan PlanFfma(const FfmaProduct& p, const FfmaDevice& device) {
  FfmaPlan best = {FfmaKind::kStreamK, 1};
  double best_time = FfmaTime(p, best, device);
  const int64_t steps = CeilDiv(p.k, kStepK);
  for (const ClusterCost& cost : kClusterCosts) {
    if (CopiesOperands(cost.kind) && p.unfit_operands == 0) continue;
    // Past a few rounds stream-K is always ahead.
    const int64_t tiles = CeilDiv(p.m, cost.tile) * CeilDiv(p.n, cost.tile);
    if (tiles > int64_t{24} * device.sm_count) continue;
    for (int slices = 1; slices <= std::min<int64_t>(kMaxFfmaSlices, steps);
         ++slices) {
      if (!IsEligible(cost, slices, device)) continue;
      const FfmaPlan plan = {cost.kind, slices};
      const double time = FfmaTime(p, plan, device);
      if (time >= best_time) continue;
      best = plan;
      best_time = time;
    }
  }
  return best;
}

}  // namespace gemmd
