#include "server/rpc/completion_loop.h"

#include <utility>

namespace gemmd {

CompletionLoop::CompletionLoop(
    std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : queue_(std::move(queue)) {}

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
  while (queue_->Next(&tag, &ok)) static_cast<Completion*>(tag)->Run(ok);
}

}  // namespace gemmd
