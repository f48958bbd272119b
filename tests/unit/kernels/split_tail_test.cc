#include "kernels/cuda/split_tail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace gemmd {
namespace {

class SplitTailTest : public testing::Test {
 protected:
  SplitTail RandomPlan() {
    const auto below = [this](int64_t n) {
      return std::uniform_int_distribution<int64_t>(1, n)(random_);
    };
    return SplitTail::Of(below(700), static_cast<int>(below(90)),
                         static_cast<int>(below(132)));
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
};

TEST_F(SplitTailTest, DealsEveryStepOnce) {
  for (int round = 0; round < 200; ++round) {
    const SplitTail plan = RandomPlan();
    std::vector<int> done(plan.tiles * plan.steps_per_tile);
    for (int worker = 0; worker < plan.workers; ++worker) {
      for (int i = 0; i < plan.Rounds(worker); ++i) {
        const SplitTailPart part = plan.Part(worker, i);
        ASSERT_LT(part.first, part.last) << "seed " << seed_;
        for (int step = part.first; step < part.last; ++step) {
          ++done[part.tile * plan.steps_per_tile + step];
        }
      }
    }
    EXPECT_EQ(std::count(done.begin(), done.end(), 1), std::ssize(done))
        << "seed " << seed_;
  }
}

// What the kernel's waits rest on: the slices of a tile are the last parts of
// neighbouring workers, in the order of k, and only those are cut.
TEST_F(SplitTailTest, GivesTheSlicesOfATileToNeighbours) {
  for (int round = 0; round < 200; ++round) {
    const SplitTail plan = RandomPlan();
    for (int worker = 0; worker < plan.workers; ++worker) {
      for (int i = 0; i < plan.Rounds(worker); ++i) {
        const SplitTailPart part = plan.Part(worker, i);
        if (part.slices == 1) continue;
        EXPECT_EQ(i + 1, plan.Rounds(worker)) << "seed " << seed_;
        ASSERT_GE(worker, part.slice) << "seed " << seed_;
        if (part.slice == 0) continue;
        const SplitTailPart before = plan.Part(worker - 1, i);
        EXPECT_EQ(before.tile, part.tile) << "seed " << seed_;
        EXPECT_EQ(before.slice, part.slice - 1) << "seed " << seed_;
        EXPECT_EQ(before.last, part.first) << "seed " << seed_;
      }
    }
  }
}

TEST_F(SplitTailTest, CutsOnlyWhereWorkersWouldIdle) {
  EXPECT_EQ(SplitTail::Of(264, 32, 132).tail_slices, 1);
  EXPECT_EQ(SplitTail::Of(264 + 112, 128, 132).tail_slices, 1);
  EXPECT_EQ(SplitTail::Of(264 + 44, 128, 132).tail_slices, 3);
  // A slice has eight steps at least.
  EXPECT_EQ(SplitTail::Of(1, 32, 132).tail_slices, 4);
  EXPECT_EQ(SplitTail::Of(1, 7, 132).tail_slices, 1);
}

}  // namespace
}  // namespace gemmd
