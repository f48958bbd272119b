#include "server/rpc/deadline.h"

#include <chrono>

namespace gemmd {

MonotonicTime MonotonicDeadline(gpr_timespec deadline) {
  constexpr int64_t kYearSeconds = int64_t{366} * 24 * 3600;
  // Subtracts without overflow; the infinities stay what they are.
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  const MonotonicTime now = MonotonicClock::now();
  if (left.tv_sec > kYearSeconds) return kNever;
  if (left.tv_sec < 0) return now;
  return now + std::chrono::seconds(left.tv_sec) +
         std::chrono::nanoseconds(left.tv_nsec);
}

}  // namespace gemmd
