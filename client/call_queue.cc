#include "client/call_queue.h"

#include <chrono>
#include <vector>

namespace gemmd::client {
namespace {

// How long the queue waits for events while an ended call's memory is still
// lent, which nothing tells it the end of. Rare, so that a poll will do.
constexpr auto kLentPoll = std::chrono::milliseconds(1);

}  // namespace

void RunCall(Call* call) {
  grpc::CompletionQueue queue;
  call->Begin(&queue);
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok) && !call->Proceed(ok)) {
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  call->WaitUntilMemoryReturned();
  call->Deliver();
}

CallQueue::CallQueue() : thread_([this] { Run(); }) {}

CallQueue::~CallQueue() {
  {
    std::unique_lock<std::mutex> lock(mu_);
    idle_.wait(lock, [this] { return calls_.empty(); });
  }
  queue_.Shutdown();
  thread_.join();
}

void CallQueue::Begin(std::shared_ptr<Call> call) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    calls_.emplace(call.get(), call);
  }
  call->Begin(&queue_);
}

void CallQueue::Deliver(Call* call) {
  call->Deliver();
  // Destroyed without the lock: what it held may begin another call.
  std::shared_ptr<Call> ended;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = calls_.find(call);
  ended = std::move(found->second);
  calls_.erase(found);
  if (calls_.empty()) idle_.notify_all();
}

void CallQueue::Run() {
  std::vector<Call*> lending;  // ended, memory not returned
  for (;;) {
    const auto until = lending.empty()
                           ? std::chrono::system_clock::time_point::max()
                           : std::chrono::system_clock::now() + kLentPoll;
    void* tag = nullptr;
    bool ok = false;
    switch (queue_.AsyncNext(&tag, &ok, until)) {
      case grpc::CompletionQueue::SHUTDOWN:
        return;
      case grpc::CompletionQueue::GOT_EVENT:
        if (Call* call = static_cast<Call*>(tag); call->Proceed(ok)) {
          lending.push_back(call);
        }
        break;
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
    std::erase_if(lending, [this](Call* call) {
      if (!call->memory_returned()) return false;
      Deliver(call);
      return true;
    });
  }
}

}  // namespace gemmd::client
