#include "server/rpc/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>

namespace gemmd {
namespace {

using std::chrono::seconds;

gpr_timespec InSeconds(gpr_clock_type clock, int64_t seconds) {
  gpr_timespec time = gpr_now(clock);
  time.tv_sec += seconds;
  return time;
}

TEST(MonotonicDeadlineTest, IsTheSameMomentOnEveryClock) {
  for (const gpr_clock_type clock : {GPR_CLOCK_MONOTONIC, GPR_CLOCK_REALTIME}) {
    const MonotonicTime now = MonotonicClock::now();
    const MonotonicTime deadline = MonotonicDeadline(InSeconds(clock, 3600));
    EXPECT_GT(deadline, now + seconds(3590));
    EXPECT_LT(deadline, now + seconds(3610));
    const MonotonicTime past = MonotonicDeadline(InSeconds(clock, -10));
    EXPECT_LE(past, MonotonicClock::now());
  }
}

TEST(MonotonicDeadlineTest, FarBeyondTheClockIsNever) {
  constexpr int64_t kYear = int64_t{366} * 24 * 3600;
  for (const gpr_clock_type clock : {GPR_CLOCK_MONOTONIC, GPR_CLOCK_REALTIME}) {
    EXPECT_EQ(MonotonicDeadline(gpr_inf_future(clock)), kNever);
    EXPECT_EQ(MonotonicDeadline(InSeconds(clock, 292 * kYear)), kNever);
    // The most that grpc-timeout can say.
    EXPECT_EQ(MonotonicDeadline(InSeconds(clock, int64_t{99999999} * 3600)),
              kNever);
    EXPECT_EQ(MonotonicDeadline(
                  {std::numeric_limits<int64_t>::max() - 1, 999999999, clock}),
              kNever);
    const MonotonicTime past = MonotonicDeadline(gpr_inf_past(clock));
    EXPECT_LE(past, MonotonicClock::now());
  }
}

}  // namespace
}  // namespace gemmd
