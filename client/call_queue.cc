#include "client/call_queue.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/time/time.h"

namespace gemmd::client {
namespace {

// How long the queue waits for events while an ended call's memory is still
// lent, which nothing tells it the end of. Rare, so that a poll will do.
constexpr auto kLentPoll = std::chrono::milliseconds(1);

thread_local CallQueue* t_delivering = nullptr;

// AsyncNext; for `busy_poll` at most without sleeping.
grpc::CompletionQueue::NextStatus Next(
    grpc::CompletionQueue* queue, absl::Duration busy_poll,
    std::chrono::system_clock::time_point until, void** tag, bool* ok) {
  if (busy_poll > absl::ZeroDuration()) {
    constexpr std::chrono::system_clock::time_point kPast;
    const auto end = std::min(std::chrono::system_clock::now() +
                                  absl::ToChronoMicroseconds(busy_poll),
                              until);
    do {
      const auto status = queue->AsyncNext(tag, ok, kPast);
      if (status != grpc::CompletionQueue::TIMEOUT) return status;
    } while (std::chrono::system_clock::now() < end);
  }
  return queue->AsyncNext(tag, ok, until);
}

}  // namespace

void RunCall(Call* call, absl::Duration busy_poll) {
  constexpr auto kForEver = std::chrono::system_clock::time_point::max();
  grpc::CompletionQueue queue;
  call->Begin(&queue);
  void* tag = nullptr;
  bool ok = false;
  while (Next(&queue, busy_poll, kForEver, &tag, &ok) ==
             grpc::CompletionQueue::GOT_EVENT &&
         !call->Proceed(ok)) {
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  call->WaitUntilMemoryReturned();
  call->Deliver();
}

CallQueue::CallQueue(absl::Duration busy_poll)
    : busy_poll_(busy_poll), thread_([this] { Run(); }) {}

int CallQueue::in_progress() const {
  std::lock_guard<std::mutex> lock(mu_);
  return static_cast<int>(calls_.size());
}

CallQueue* CallQueue::Delivering() { return t_delivering; }

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
  t_delivering = this;
  call->Deliver();
  t_delivering = nullptr;
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
    switch (Next(&queue_, busy_poll_, until, &tag, &ok)) {
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
