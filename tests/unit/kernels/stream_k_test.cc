#include "kernels/cuda/stream_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace gemmd {
namespace {

class StreamKTest : public testing::Test {
 protected:
  StreamKTest() { RecordProperty("seed", static_cast<int>(seed_)); }

  StreamK RandomPlan() {
    StreamK plan;
    plan.tiles = std::uniform_int_distribution<int64_t>(1, 600)(random_);
    plan.steps_per_tile =
        std::uniform_int_distribution<int64_t>(1, 90)(random_);
    const int64_t most = plan.tiles * plan.steps_per_tile;
    plan.workers = static_cast<int>(std::uniform_int_distribution<int64_t>(
        1, std::min<int64_t>(264, most))(random_));
    return plan;
  }

  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
};

TEST_F(StreamKTest, DealsEveryStepOnce) {
  for (int round = 0; round < 200; ++round) {
    const StreamK plan = RandomPlan();
    std::vector<int> done(plan.tiles * plan.steps_per_tile);
    for (int worker = 0; worker < plan.workers; ++worker) {
      for (StreamKSegments s(plan, worker); !s.done();) {
        const StreamKSegment segment = s.Next();
        for (int step = segment.first; step < segment.last; ++step) {
          ++done[segment.tile * plan.steps_per_tile + step];
        }
      }
    }
    EXPECT_EQ(std::count(done.begin(), done.end(), 1), std::ssize(done))
        << "seed " << seed_;
  }
}

TEST_F(StreamKTest, DealsEvenly) {
  for (int round = 0; round < 200; ++round) {
    const StreamK plan = RandomPlan();
    const int64_t steps = plan.tiles * plan.steps_per_tile;
    for (int worker = 0; worker < plan.workers; ++worker) {
      const int64_t own = plan.FirstStep(worker + 1) - plan.FirstStep(worker);
      EXPECT_GE(own, steps / plan.workers) << "seed " << seed_;
      EXPECT_LE(own, steps / plan.workers + 1) << "seed " << seed_;
    }
  }
}

// What the kernel's waits rest on: only a worker's first segment may end
// before its tile does, and the tile's owner is a later worker, to whom all
// workers from FirstWorkerOf on have left something.
TEST_F(StreamKTest, LeavesOnePartialSumBeforeAnythingElse) {
  for (int round = 0; round < 200; ++round) {
    const StreamK plan = RandomPlan();
    std::vector<int64_t> left_for(plan.workers, -1);
    for (int worker = 0; worker < plan.workers; ++worker) {
      bool first = true;
      for (StreamKSegments s(plan, worker); !s.done(); first = false) {
        const StreamKSegment segment = s.Next();
        if (segment.last < plan.steps_per_tile) {
          EXPECT_TRUE(first) << "seed " << seed_;
          left_for[worker] = segment.tile;
          continue;
        }
        const int from = plan.FirstWorkerOf(segment.tile);
        EXPECT_EQ(segment.first == 0, from == worker) << "seed " << seed_;
        for (int other = from; other < worker; ++other) {
          EXPECT_EQ(left_for[other], segment.tile) << "seed " << seed_;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gemmd
