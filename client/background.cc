#include "client/background.h"

#include <utility>

namespace gemmd::client {

Background::~Background() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    ending_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Background::Run(absl::AnyInvocable<void() &&> task) {
  std::lock_guard<std::mutex> lock(mu_);
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < kThreads) {
    threads_.emplace_back([this] { Work(); });
  }
  changed_.notify_one();
}

void Background::Work() {
  std::unique_lock<std::mutex> lock(mu_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    absl::AnyInvocable<void()&&> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    std::move(task)();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace gemmd::client
