#include "server/schedule/drain_rate.h"

#include <gtest/gtest.h>

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonotonicTime kStart{seconds(1000)};

TEST(DrainRateTest, SaysADefaultUntilItHasSeenABacklog) {
  EXPECT_EQ(DrainRate().RetryDelay(1000), DrainRate::kUnknown);
}

TEST(DrainRateTest, DelayIsTheTimeOfHalfTheBacklog) {
  DrainRate rate;
  rate.Restart(kStart);
  for (int ms = 1; ms <= 100; ++ms) rate.Note(1, kStart + milliseconds(ms));
  // 1000 a second.
  EXPECT_EQ(rate.RetryDelay(1000), milliseconds(500));
  EXPECT_EQ(rate.RetryDelay(1), DrainRate::kShortest);
  EXPECT_EQ(rate.RetryDelay(1e9), DrainRate::kLongest);
}

TEST(DrainRateTest, IdleTimeDoesNotCount) {
  DrainRate rate;
  rate.Restart(kStart);
  for (int ms = 1; ms <= 100; ++ms) rate.Note(1, kStart + milliseconds(ms));
  const MonotonicTime later = kStart + seconds(3600);
  rate.Restart(later);
  for (int ms = 1; ms <= 100; ++ms) rate.Note(1, later + milliseconds(ms));
  EXPECT_EQ(rate.RetryDelay(1000), milliseconds(500));
}

}  // namespace
}  // namespace gemmd
