// The clock of deadlines, delays and stage times. Policies take it as a
// parameter; only their callers read it.

#pragma once

#include <chrono>

namespace gemmd {

using MonotonicClock = std::chrono::steady_clock;
using MonotonicTime = MonotonicClock::time_point;
using MonotonicDuration = MonotonicClock::duration;

inline constexpr MonotonicTime kNever = MonotonicTime::max();
// Before every other time.
inline constexpr MonotonicTime kAlways = MonotonicTime::min();

inline double Seconds(MonotonicDuration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace gemmd
