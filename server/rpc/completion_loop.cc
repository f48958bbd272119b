#include "server/rpc/completion_loop.h"

#include <grpc/support/time.h>

#include <utility>

#include "server/execute/thread_load.h"

namespace gemmd {
namespace {

const gpr_timespec kNow = gpr_time_0(GPR_CLOCK_MONOTONIC);

thread_local CompletionLoop* t_loop = nullptr;

}  // namespace

CompletionLoop::CompletionLoop(
    std::unique_ptr<grpc::ServerCompletionQueue> queue,
    CompletionLoopOptions options)
    : queue_(std::move(queue)), options_(options) {}

CompletionLoop::~CompletionLoop() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Poll();  // gRPC wants a queue drained, started or not
  }
}

void CompletionLoop::Start() {
  thread_ = std::thread([this] {
    t_loop = this;
    Poll();
  });
}

CompletionLoop* CompletionLoop::Current() { return t_loop; }

bool CompletionLoop::AskForMore() {
  if (t_loop == nullptr || t_loop->options_.gatherers == nullptr) return false;
  if (t_loop->gathering_.empty()) t_loop->options_.gatherers->Begin();
  t_loop->gathering_.Add();
  return true;
}

bool CompletionLoop::Takes(bool many) const {
  return options_.takes_ends && t_loop != this &&
         (many || !asleep_.load(std::memory_order_relaxed));
}

void CompletionLoop::Post(Job job) {
  MutexLock lock(&mu_);
  posted_.push_back(std::move(job));
  if (posted_.size() == 1) {
    alarm_.Set(queue_.get(), kNow, run_posted_.tag());
  }
}

void CompletionLoop::RunPosted(bool /*ok*/) {
  std::vector<Job> posted;
  {
    MutexLock lock(&mu_);
    posted.swap(posted_);
  }
  for (Job& job : posted) std::move(job)();
}

void CompletionLoop::Poll() {
  void* tag;
  bool ok;
  while (Next(&tag, &ok)) {
    bool more = true;
    while (more) {
      void* next_tag = nullptr;
      bool next_ok = false;
      more = options_.looks_ahead &&
             queue_->AsyncNext(&next_tag, &next_ok, kNow) ==
                 grpc::CompletionQueue::GOT_EVENT;
      SetThreadHasMore(more);
      static_cast<Completion*>(tag)->Run(ok);
      tag = next_tag;
      ok = next_ok;
    }
  }
}

bool CompletionLoop::Next(void** tag, bool* ok) {
  const bool sleeps = gathering_.empty() && options_.busy_poll.count() == 0;
  const MonotonicTime begin = sleeps ? MonotonicTime() : MonotonicClock::now();
  MonotonicDuration quiet{0};
  for (int looks = 1; !gathering_.empty() || quiet < options_.busy_poll;
       ++looks) {
    const auto status = queue_->AsyncNext(tag, ok, kNow);
    if (status != grpc::CompletionQueue::TIMEOUT) {
      return status == grpc::CompletionQueue::GOT_EVENT;
    }
    quiet = MonotonicClock::now() - begin;
    if (!gathering_.empty() && gathering_.IsOver(looks, quiet)) {
      gathering_.End();
      options_.gatherers->End();
    }
  }
  asleep_.store(true, std::memory_order_relaxed);
  const bool got = queue_->Next(tag, ok);
  asleep_.store(false, std::memory_order_relaxed);
  return got;
}

}  // namespace gemmd
