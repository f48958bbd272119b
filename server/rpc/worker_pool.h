// Threads for what would hold a polling thread up.

#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/mutex.h"

namespace gemmd {

// Runs jobs in the order of Post. Its queue has no limit: each job belongs to a
// call, and those are limited.
//
// Thread-safe.
class WorkerPool {
 public:
  using Job = absl::AnyInvocable<void() &&>;

  explicit WorkerPool(int threads);

  // Runs what is left and joins.
  ~WorkerPool();

  void Post(Job job);

 private:
  void Run();

  Mutex mu_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace gemmd
