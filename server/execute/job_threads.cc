#include "server/execute/job_threads.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

void Join(std::thread& thread) { thread.join(); }

}  // namespace

JobThreads::JobThreads(int count, const std::string& name) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this] { Work(); });
    pthread_setname_np(threads_.back().native_handle(),
                       absl::StrCat(name, i).c_str());
  }
}

JobThreads::~JobThreads() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.SignalAll();
  }
  std::for_each(threads_.begin(), threads_.end(), Join);
}

void JobThreads::Post(Job job) {
  MutexLock lock(&mu_);
  jobs_.push_back(std::move(job));
  work_.Signal();
}

void JobThreads::Work() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mu_);
      while (jobs_.empty() && !stopping_) work_.Wait(&mu_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    std::move(job)();
  }
}

}  // namespace gemmd
