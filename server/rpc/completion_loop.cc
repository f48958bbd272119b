#include "server/rpc/completion_loop.h"

#include <grpc/support/time.h>

#include <utility>

#include "server/execute/thread_load.h"

namespace gemmd {
namespace {

const gpr_timespec kNow = gpr_time_0(GPR_CLOCK_MONOTONIC);

thread_local bool t_has_idle = false;
thread_local bool t_idle_asked = false;

}  // namespace

CompletionLoop::CompletionLoop(
    std::unique_ptr<grpc::ServerCompletionQueue> queue,
    MonotonicDuration busy_poll, std::function<void()> idle, bool looks_ahead)
    : queue_(std::move(queue)),
      busy_poll_(busy_poll),
      idle_(std::move(idle)),
      looks_ahead_(looks_ahead) {}

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
    t_has_idle = idle_ != nullptr;
    Poll();
  });
}

bool CompletionLoop::AskForIdle() {
  if (t_has_idle) t_idle_asked = true;
  return t_has_idle;
}

void CompletionLoop::Poll() {
  void* tag;
  bool ok;
  while (Next(&tag, &ok)) {
    bool more = true;
    while (more) {
      void* next_tag = nullptr;
      bool next_ok = false;
      more = looks_ahead_ && queue_->AsyncNext(&next_tag, &next_ok, kNow) ==
                                 grpc::CompletionQueue::GOT_EVENT;
      SetThreadHasMore(more);
      static_cast<Completion*>(tag)->Run(ok);
      tag = next_tag;
      ok = next_ok;
    }
  }
}

bool CompletionLoop::Next(void** tag, bool* ok) {
  if (t_idle_asked || busy_poll_.count() > 0) {
    const MonotonicTime until = MonotonicClock::now() + busy_poll_;
    do {
      const auto status = queue_->AsyncNext(tag, ok, kNow);
      if (status != grpc::CompletionQueue::TIMEOUT) {
        return status == grpc::CompletionQueue::GOT_EVENT;
      }
      if (std::exchange(t_idle_asked, false)) idle_();
    } while (MonotonicClock::now() < until);
  }
  return queue_->Next(tag, ok);
}

}  // namespace gemmd
