// Knows how many of something there are, and when there are none.

#pragma once

#include <memory>

#include "server/monotonic_time.h"
#include "server/mutex.h"

namespace gemmd {

// Thread-safe.
class LiveCount {
 public:
  void Add() {
    MutexLock lock(&mu_);
    ++count_;
  }

  void Remove() {
    MutexLock lock(&mu_);
    if (--count_ == 0) none_.SignalAll();
  }

  // Counts one until the pointer lets go.
  struct Remover {
    void operator()(LiveCount* count) const { count->Remove(); }
  };
  using Hold = std::unique_ptr<LiveCount, Remover>;
  Hold AddHeld() {
    Add();
    return Hold(this);
  }

  // Blocks until the count is 0.
  void WaitForNone() {
    MutexLock lock(&mu_);
    while (count_ > 0) none_.Wait(&mu_);
  }

  // Blocks until the count is 0 or `deadline`; true if it is 0.
  bool WaitForNoneUntil(MonotonicTime deadline) {
    MutexLock lock(&mu_);
    while (count_ > 0 && MonotonicClock::now() < deadline) {
      none_.WaitUntil(&mu_, deadline);
    }
    return count_ == 0;
  }

  int count() const {
    MutexLock lock(&mu_);
    return count_;
  }

 private:
  mutable Mutex mu_;
  CondVar none_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace gemmd
