// When a polling thread has seen enough of what comes at about the same time.

#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "server/monotonic_time.h"

namespace gemmd {

// Requests that wait for each other (rows against one resident B) come from
// many connections, of which gRPC reads one at a look: that a look brings
// nothing does not mean that nobody is at the door. So a thread looks a few
// times more, and for kQuiet where fewer have come than the last time.
//
// A lone client's request waits for kLooks looks, some microseconds: it is
// alone, and so was the last one. Of n clients that come together all but the
// first gathering has n, and ends with the last of them. Where n becomes
// smaller one gathering waits kQuiet in vain; so does the one after a stream of
// requests without a pause, of which those count too that a full batch or the
// timer has let go. Nothing here bounds how long a thread gathers while
// requests come: BatchQueueOptions::max_hold does. With several queues another
// thread may do the looking for all (gRPC's epoll1), and kQuiet is what counts.
//
// Thread-compatible; one a thread.
class Gathering {
 public:
  static constexpr int kLooks = 4;
  static constexpr MonotonicDuration kQuiet = std::chrono::microseconds(50);

  // One more request is held.
  void Add() { ++here_; }

  bool empty() const { return here_ == 0; }

  // Whether what is here need not wait any longer, when `looks` looks in a row
  // brought nothing, for `quiet` now.
  bool IsOver(int looks, MonotonicDuration quiet) const {
    return looks >= kLooks && (here_ >= expected_ || quiet >= kQuiet);
  }

  // What was here goes on.
  void End() {
    expected_ = here_;
    here_ = 0;
  }

 private:
  int here_ = 0;
  int expected_ = 0;  // as many as the last time
};

// All polling threads of a server that gather. What one holds waits for the
// others too, at most max_hold.
//
// Thread-safe.
class Gatherers {
 public:
  // `all_over` is called by the thread whose End leaves none that gathers.
  explicit Gatherers(std::function<void()> all_over)
      : all_over_(std::move(all_over)) {}

  void Begin() { gathering_.fetch_add(1); }
  void End() {
    if (gathering_.fetch_sub(1) == 1) all_over_();
  }

 private:
  const std::function<void()> all_over_;
  std::atomic<int> gathering_{0};
};

}  // namespace gemmd
