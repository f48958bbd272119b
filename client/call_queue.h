// The thread that drives asynchronous calls.

#pragma once

#include <grpcpp/completion_queue.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "client/call.h"

namespace gemmd::client {

// Drives `call` to its end on the present thread and delivers it.
void RunCall(Call* call);

// Thread-safety: Begin from any thread at once; the destructor after them all.
class CallQueue {
 public:
  CallQueue();

  // Waits for the delivery of what is in progress.
  ~CallQueue();

  // Begins `call`; the queue's thread drives and delivers it.
  void Begin(std::shared_ptr<Call> call);

 private:
  void Run();
  void Deliver(Call* call);

  grpc::CompletionQueue queue_;
  std::mutex mu_;
  std::condition_variable idle_;
  // What has begun and is not delivered; guarded by mu_.
  std::unordered_map<Call*, std::shared_ptr<Call>> calls_;
  std::thread thread_;
};

}  // namespace gemmd::client
