// How fast a backlog goes away: what a client that was turned away is told to
// wait.

#pragma once

#include <algorithm>
#include <chrono>

#include "server/monotonic_time.h"

namespace gemmd {

// The rate at which something that is never empty empties, in units a second.
// Only backlogged time counts: an hour without requests says nothing about how
// fast they would have been served.
//
// Pure, thread-compatible.
class DrainRate {
 public:
  // The backlog was empty and no longer is.
  void Restart(MonotonicTime now) {
    window_start_ = now;
    window_amount_ = 0;
  }

  // `amount` left the backlog.
  void Note(double amount, MonotonicTime now) {
    window_amount_ += amount;
    const MonotonicDuration window = now - window_start_;
    if (window < kWindow) return;
    const double rate = window_amount_ / Seconds(window);
    per_second_ = per_second_ == 0 ? rate : (per_second_ + rate) / 2;
    Restart(now);
  }

  // Until half of `backlog` is gone, as far as that is known: then there is
  // room again, and those who wait for it do not all come to an empty queue.
  MonotonicDuration RetryDelay(double backlog) const {
    if (per_second_ <= 0) return kUnknown;
    const std::chrono::duration<double> half(backlog / per_second_ / 2);
    if (half > std::chrono::duration<double>(kLongest)) return kLongest;
    return std::max<MonotonicDuration>(
        kShortest, std::chrono::duration_cast<MonotonicDuration>(half));
  }

  static constexpr MonotonicDuration kWindow = std::chrono::milliseconds(50);
  static constexpr MonotonicDuration kShortest = std::chrono::milliseconds(5);
  static constexpr MonotonicDuration kUnknown = std::chrono::milliseconds(100);
  static constexpr MonotonicDuration kLongest = std::chrono::seconds(5);

 private:
  MonotonicTime window_start_{};
  double window_amount_ = 0;
  double per_second_ = 0;  // 0: not known yet
};

}  // namespace gemmd
