// One call of the user's, which may take several messages.

#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace gemmd::client {

// How long a call may take, and its cancellation, wherever it has got to.
//
// Thread-safe.
class Operation {
 public:
  // Begins now. `timeout` may be infinite.
  explicit Operation(absl::Duration timeout);
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  absl::Duration timeout() const { return timeout_; }
  absl::Duration elapsed() const;
  absl::Duration remaining() const { return timeout_ - elapsed(); }

  void Cancel();
  bool cancelled() const;

  // Sleeps, but not past a Cancel.
  void SleepFor(absl::Duration duration);

  // While one lives, Cancel calls `cancel`; at once if it has come already.
  class Step {
   public:
    Step(Operation* operation, std::function<void()> cancel);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Operation* const operation_;
    std::list<std::function<void()>>::iterator place_;
  };

 private:
  const absl::Duration timeout_;
  const std::chrono::steady_clock::time_point begin_;

  mutable std::mutex mu_;
  std::condition_variable cancel_;
  bool cancelled_ = false;                  // guarded by mu_
  std::list<std::function<void()>> steps_;  // guarded by mu_
};

}  // namespace gemmd::client
