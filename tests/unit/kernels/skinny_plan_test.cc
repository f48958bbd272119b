#include "kernels/cuda/skinny_plan.h"

#include <cstdint>
#include <random>

#include "gtest/gtest.h"
#include "tests/unit/kernels/problem.h"

namespace gemmd {
namespace {

constexpr int kSms = 132;

TEST(SkinnyPlanTest, CoversBAndGivesEverySliceAStep) {
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 2000; ++i) {
    const auto n = static_cast<int64_t>(1 + random() % (1 << random() % 20));
    const auto k = static_cast<int64_t>(1 + random() % (1 << random() % 20));
    const SkinnyPlan plan = PlanSkinny(n, k, kSms);
    EXPECT_GE(plan.tiles * kSkinnyTileN, n);
    EXPECT_LT((plan.tiles - 1) * kSkinnyTileN, n);
    EXPECT_GE(plan.steps * kSkinnyStepK, k);
    EXPECT_LT((plan.steps - 1) * kSkinnyStepK, k);
    EXPECT_GE(plan.slices, 1);
    EXPECT_LE(plan.slices, plan.steps);
  }
}

TEST(SkinnyPlanTest, FillsTheChipWhereTilesAreFew) {
  EXPECT_EQ(PlanSkinny(4096, 4096, kSms).slices, 4);     // 256 blocks for 264
  EXPECT_EQ(PlanSkinny(4097, 4096, kSms).slices, 4);     // 260
  EXPECT_GT(PlanSkinny(64, 65536, kSms).slices, 32);     // one tile
  EXPECT_EQ(PlanSkinny(64, 32, kSms).slices, 1);         // nothing to cut
  EXPECT_EQ(PlanSkinny(1 << 20, 4096, kSms).slices, 1);  // tiles enough
}

TEST(SkinnyPlanTest, TakesTheLargestSizes) {
  const SkinnyPlan plan = PlanSkinny(int64_t{1} << 62, int64_t{1} << 62, kSms);
  EXPECT_EQ(plan.slices, 1);
  EXPECT_EQ(plan.tiles, (int64_t{1} << 62) / kSkinnyTileN);
}

}  // namespace
}  // namespace gemmd
