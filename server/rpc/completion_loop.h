// What stands behind a completion queue's tags, and the thread that runs them.

#pragma once

#include <grpcpp/completion_queue.h>

#include <functional>
#include <memory>
#include <thread>

#include "server/monotonic_time.h"

namespace gemmd {

// The target of a tag. Run is called once for every operation the tag was given
// to, on the polling thread; it must not block. `ok` is gRPC's.
class Completion {
 public:
  virtual void Run(bool ok) = 0;

 protected:
  ~Completion() = default;
};

// A completion that calls a method. The object may delete itself there.
template <typename T>
class MethodCompletion final : public Completion {
 public:
  MethodCompletion(T* object, void (T::*method)(bool))
      : object_(object), method_(method) {}

  void Run(bool ok) override { (object_->*method_)(ok); }

  // What to give to gRPC.
  void* tag() { return static_cast<Completion*>(this); }

 private:
  T* const object_;
  void (T::*const method_)(bool);
};

// One queue and its one polling thread. For `busy_poll` after an event the
// thread looks for the next without sleeping: a core for a sleeper's wake-up.
class CompletionLoop {
 public:
  // `idle`, if any, is called on the polling thread when a completion has asked
  // for it and no other one is ready. With `looks_ahead` the thread takes the
  // next completion, if one is ready, before it runs one, which then knows of
  // it (ThreadHasMore): what can be done elsewhere is not done here. Without it
  // never says that it has more.
  explicit CompletionLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue,
                          MonotonicDuration busy_poll = {},
                          std::function<void()> idle = nullptr,
                          bool looks_ahead = false);

  // Shuts the queue down and joins. Needs: the server is shut down and nothing
  // will be posted any more; gRPC ends the process over a late operation.
  ~CompletionLoop();

  grpc::ServerCompletionQueue* queue() const { return queue_.get(); }

  // Starts polling; once, after the server has started.
  void Start();

  // On the polling thread of a loop with `idle`: asks that it be called once no
  // more completions are ready, and true. Elsewhere false.
  static bool AskForIdle();

 private:
  void Poll();
  bool Next(void** tag, bool* ok);  // false: the queue has ended

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const MonotonicDuration busy_poll_;
  const std::function<void()> idle_;
  const bool looks_ahead_;
  std::thread thread_;
};

}  // namespace gemmd
