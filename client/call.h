// One unary call: its tries, its deadline, its end.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <mutex>
#include <optional>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connections.h"
#include "client/identity.h"
#include "client/lent_memory.h"
#include "client/operation.h"
#include "gemmd/client.h"

namespace gemmd::client {

// A call is driven by whoever takes its tag, its own address, out of the
// completion queue it was begun on:
//
//   Begin -> tag -> Proceed == false: another tag will come
//                -> Proceed == true:  ended; once memory_returned(), Deliver()
//
// Thread-safety: Cancel from any thread at any time; the rest by one thread at
// a time.
class Call {
 public:
  using Done =
      absl::AnyInvocable<void(absl::StatusOr<grpc::ByteBuffer>, int attempts)>;

  // What a call is made of. The first three outlive the call.
  struct Parts {
    const Connections* connections;
    const Identity* identity;
    Operation* operation;  // how long it may take
    RetryPolicy retry;
    const char* method;  // "/package.Service/Method", a constant
    grpc::ByteBuffer request;
    LentMemory lent;  // what `request` refers to
    Done done;        // called by Deliver, once

    // Only what the server says that it refused (with RetryInfo) is tried
    // again: of a connection that was lost, it may have run the call.
    bool retry_refusals_alone = false;

    // Tries that were made before, elsewhere, and how long to wait for the
    // next.
    int attempts = 0;
    absl::Duration delay = absl::ZeroDuration();
  };
  explicit Call(Parts&& parts);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void Begin(grpc::CompletionQueue* queue);
  bool Proceed(bool ok);
  bool memory_returned() const { return parts_.lent.AllReturned(); }
  void WaitUntilMemoryReturned() { parts_.lent.WaitUntilAllReturned(); }
  void Deliver();

  void Cancel();

 private:
  // One time that the request is sent.
  struct Attempt {
    explicit Attempt(std::shared_ptr<Connection> to);
    ~Attempt();

    const std::shared_ptr<Connection> connection;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };

  void BeginAttempt();  // with mu_ held
  void WakeAfter(absl::Duration delay);
  bool AttemptEnded();

  Parts parts_;
  grpc::CompletionQueue* queue_ = nullptr;
  int attempts_ = 0;
  absl::StatusOr<grpc::ByteBuffer> result_;  // once ended

  // Against Cancel.
  std::mutex mu_;
  bool cancelled_ = false;            // guarded by mu_
  std::optional<Attempt> attempt_;    // guarded by mu_; absent while waiting
  std::optional<grpc::Alarm> alarm_;  // guarded by mu_
};

}  // namespace gemmd::client
