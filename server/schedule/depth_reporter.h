// Keeps a gauge true that many threads move.

#pragma once

#include <cstddef>
#include <utility>

#include "server/mutex.h"
#include "server/schedule/batch_scheduler.h"

namespace gemmd {

// Tells a BatchObserver the queue's depth when it has changed, one thread at a
// time and with no lock held: so the last figure told is the last that was
// true, which callers on their own could not promise.
//
// Thread-safe.
class DepthReporter {
 public:
  // `observer` may be null.
  explicit DepthReporter(BatchObserver* observer) : observer_(observer) {}

  // To be called after the depth may have changed. `read` gives the present
  // depth, as a pair of requests and bytes.
  template <typename Read>
  void Report(Read read) ABSL_LOCKS_EXCLUDED(mu_) {
    if (observer_ == nullptr || !BecomeReporter()) return;
    while (MustLookAgain()) {
      const std::pair<int, size_t> depth = read();
      if (depth == told_) continue;
      told_ = depth;
      observer_->OnQueueDepth(depth.first, depth.second);
    }
  }

 private:
  // False: another thread is, and will look again.
  bool BecomeReporter() {
    MutexLock lock(&mu_);
    look_again_ = true;
    return !std::exchange(reporting_, true);
  }

  // False: the depth has been told, and this thread is the reporter no more.
  bool MustLookAgain() {
    MutexLock lock(&mu_);
    if (!look_again_) reporting_ = false;
    return std::exchange(look_again_, false);
  }

  BatchObserver* const observer_;
  std::pair<int, size_t> told_ = {0, 0};  // of the reporter
  Mutex mu_;
  bool reporting_ ABSL_GUARDED_BY(mu_) = false;
  bool look_again_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace gemmd
