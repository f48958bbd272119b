// The thread that drives asynchronous calls.

#pragma once

#include <grpcpp/completion_queue.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "absl/time/time.h"
#include "client/call.h"

namespace gemmd::client {

// Drives `call` to its end on the present thread and delivers it. After each
// event it looks for the next for `busy_poll` before it sleeps.
void RunCall(Call* call, absl::Duration busy_poll);

// Thread-safety: Begin from any thread at once; the destructor after them all.
class CallQueue {
 public:
  // `busy_poll`: as in RunCall.
  explicit CallQueue(absl::Duration busy_poll);

  // Waits for the delivery of what is in progress.
  ~CallQueue();

  // Begins `call`; the queue's thread drives and delivers it.
  void Begin(std::shared_ptr<Call> call);

  // Calls that have begun and whose delivery is not over: those that its thread
  // has or will have to do with.
  int in_progress() const;

  // The queue whose thread this is, where it delivers a call; else null.
  static CallQueue* Delivering();

 private:
  void Run();
  void Deliver(Call* call);

  const absl::Duration busy_poll_;
  grpc::CompletionQueue queue_;
  mutable std::mutex mu_;
  std::condition_variable idle_;
  // What has begun and is not delivered; guarded by mu_.
  std::unordered_map<Call*, std::shared_ptr<Call>> calls_;
  std::thread thread_;
};

}  // namespace gemmd::client
