// What stands behind a completion queue's tags, and the thread that runs them.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"
#include "server/rpc/gathering.h"

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

struct CompletionLoopOptions {
  // For so long after an event the thread looks for the next without sleeping:
  // a core for a sleeper's wake-up.
  MonotonicDuration busy_poll{0};
  // Told when the thread begins and ends to gather (AskForMore); may be null.
  Gatherers* gatherers = nullptr;
  // The thread takes the next completion, if one is ready, before it runs one,
  // which then knows of it (ThreadHasMore): what can be done elsewhere is not
  // done here. Without it never says that it has more.
  bool looks_ahead = false;
  // Of several loops: what ends on a device's thread is answered by the thread
  // of its call's queue (Takes).
  bool takes_ends = false;
};

// One queue and its one polling thread.
class CompletionLoop {
 public:
  using Job = absl::AnyInvocable<void() &&>;

  explicit CompletionLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue,
                          CompletionLoopOptions options = {});

  // Shuts the queue down and joins. Needs: the server is shut down and nothing
  // will be posted any more; gRPC ends the process over a late operation.
  ~CompletionLoop();

  grpc::ServerCompletionQueue* queue() const { return queue_.get(); }

  // Starts polling; once, after the server has started.
  void Start();

  // The loop whose polling thread this is; else null.
  static CompletionLoop* Current();

  // On the polling thread of a loop with `gatherers`: tells them that it
  // gathers, until no more completions come (Gathering), and true. Elsewhere
  // false.
  static bool AskForMore();

  // Whether the present thread should leave the end of a product to this
  // loop's: `many` were made together. One alone is not worth waking a sleeper
  // for; it goes to a thread that is awake, perhaps busy.
  bool Takes(bool many) const;

  // Runs `job` on the polling thread, soon. From any thread. Needs: a call of
  // this queue that lives until `job` has run.
  void Post(Job job) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Poll();
  bool Next(void** tag, bool* ok);  // false: the queue has ended
  void RunPosted(bool ok);

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  const CompletionLoopOptions options_;
  Gathering gathering_;  // the polling thread's
  std::atomic<bool> asleep_{false};

  Mutex mu_;
  // One alarm is set while there are any.
  std::vector<Job> posted_ ABSL_GUARDED_BY(mu_);
  grpc::Alarm alarm_;
  MethodCompletion<CompletionLoop> run_posted_{this,
                                               &CompletionLoop::RunPosted};

  std::thread thread_;
};

}  // namespace gemmd
