// Threads for calls that take many messages and were begun asynchronously.

#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace gemmd::client {

// Runs tasks in the order they came, two at a time: while one waits for a
// device, the other keeps the wire busy. Starts a thread when it is first
// needed.
//
// Thread-safe; the destructor runs what is left, and waits.
class Background {
 public:
  Background() = default;
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void Run(absl::AnyInvocable<void() &&> task);

 private:
  static constexpr size_t kThreads = 2;

  void Work();

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<absl::AnyInvocable<void() &&>> tasks_;  // guarded by mu_
  size_t idle_ = 0;                                  // guarded by mu_
  bool ending_ = false;                              // guarded by mu_
  std::vector<std::thread> threads_;                 // guarded by mu_
};

}  // namespace gemmd::client
