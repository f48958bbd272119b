#include "server/rpc/completion_loop.h"

#include <grpc/support/time.h>

#include <utility>

namespace gemmd {

CompletionLoop::CompletionLoop(
    std::unique_ptr<grpc::ServerCompletionQueue> queue,
    MonotonicDuration busy_poll)
    : queue_(std::move(queue)), busy_poll_(busy_poll) {}

CompletionLoop::~CompletionLoop() {
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    Poll();  // gRPC wants a queue drained, started or not
  }
}

void CompletionLoop::Start() {
  thread_ = std::thread([this] { Poll(); });
}

void CompletionLoop::Poll() {
  void* tag;
  bool ok;
  while (Next(&tag, &ok)) static_cast<Completion*>(tag)->Run(ok);
}

bool CompletionLoop::Next(void** tag, bool* ok) {
  if (busy_poll_.count() > 0) {
    const MonotonicTime until = MonotonicClock::now() + busy_poll_;
    do {
      const auto status =
          queue_->AsyncNext(tag, ok, gpr_time_0(GPR_CLOCK_MONOTONIC));
      if (status != grpc::CompletionQueue::TIMEOUT) {
        return status == grpc::CompletionQueue::GOT_EVENT;
      }
    } while (MonotonicClock::now() < until);
  }
  return queue_->Next(tag, ok);
}

}  // namespace gemmd
