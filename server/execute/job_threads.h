// Threads that run jobs in the order in which they are posted.

#pragma once

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/mutex.h"

namespace gemmd {

// With one thread, jobs run one after another. The destructor runs what was
// posted to its end. The queue has no limit: those who post have.
//
// Thread-safe.
class JobThreads {
 public:
  using Job = absl::AnyInvocable<void() &&>;

  // `name` is what the operating system calls them, with a number; 15 bytes in
  // all.
  JobThreads(int count, const std::string& name);
  ~JobThreads();

  void Post(Job job) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar work_;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace gemmd
