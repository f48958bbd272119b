// A call's life, whatever its method: offered to gRPC, begun by a client, ended
// once.
//
//   offered --Arrived(ok)--> begun --Finish posted--> finished
//      \----Arrived(!ok): the server shuts down, deleted
//
// A call that has begun gets two last events, in either order: the completion
// of its Finish, and gRPC's notice that the call is over (which is also how a
// cancellation, a lost client or a passed deadline becomes known). After both,
// and all others that it said it expects, it deletes itself.

#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/access_list.h"
#include "server/auth/roles.h"
#include "server/monotonic_time.h"
#include "server/observe/event_log.h"
#include "server/observe/metrics.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/completion_loop.h"

namespace gemmd {

class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 protected:
  // A derived class asks gRPC for the next call of its method at the end of its
  // constructor, with arrival_tag().
  Call(CallEnvironment* environment, grpc::ServerCompletionQueue* queue,
       Method method);
  virtual ~Call();

  // Offers another call of the same kind in this one's place.
  virtual void Renew() = 0;

  // The client's request is there. On the polling thread.
  virtual void Begin() = 0;

  // Of the request, before Begin; 0 where a call has no one request, or has not
  // received it yet.
  virtual size_t RequestBytes() const { return 0; }

  // A further event that the call must live to see (the completion of a Read or
  // a Write, a device's word): announced before it can come, and over when the
  // call need not live for it any more. The call may be gone then. Between the
  // announcement and Finish somebody must know that it will come.
  void ExpectEvent() { events_.fetch_add(1, std::memory_order_relaxed); }
  void EventOver();

  // To be called when a request that came after Begin is there, before anything
  // is made of it.
  void RequestIsThere(size_t bytes);

  // A message of a stream came. On the polling thread.
  void MessageIsThere(size_t bytes) { request_bytes_ += bytes; }

  // The client or the deadline has ended the call before its Finish: `why` is
  // CANCELLED or DEADLINE_EXCEEDED. On the polling thread; Finish must still be
  // posted, now or later. Comes also after a Finish that the client does not
  // hear of: what posts a Finish must know of each other, since a second one
  // ends the process.
  virtual void Cancelled(const absl::Status& why) {}

  // Adds what the log should tell of the call. After its end, on the polling
  // thread.
  virtual void DescribeEnd(EndedRequest* request) {}

  // Who calls, if they may do what `wanted` says: to be asked before anything
  // is done for them. UNAUTHENTICATED, PERMISSION_DENIED, or INVALID_ARGUMENT
  // for a malformed identity.
  absl::StatusOr<std::string> Admit(Role wanted);

  // For a call that goes on: whether they still may, by the access list as it
  // is now. The errors of Admit, and UNAUTHENTICATED where the credentials have
  // become another client's. Not by two threads at once.
  absl::Status AdmitAgain(Role wanted);

  // What Admit said; empty before.
  const std::string& client() const { return client_; }

  // To be called once, right before Finish is posted with finish_tag(): notes
  // how the call ends, with an answer of how many bytes, and gives gRPC's form
  // of it. After Finish is posted the call may be deleted at any moment.
  grpc::Status End(const absl::Status& status, size_t answer_bytes = 0);

  void* arrival_tag() { return arrived_.tag(); }
  void* finish_tag() { return finished_.tag(); }

  // When the request was there, and when its answer is no longer wanted.
  MonotonicTime arrival() const { return arrival_; }
  MonotonicTime Deadline() const;

  CallEnvironment& environment() { return *environment_; }
  grpc::ServerCompletionQueue* queue() { return queue_; }
  CompletionLoop* loop() { return loop_; }  // of `queue`, from Begin on
  grpc::ServerContext& context() { return context_; }

 private:
  void Arrived(bool ok);
  void Finished(bool ok);
  void NoteUnheardEnd();
  void Done(bool ok);

  CallEnvironment* const environment_;
  grpc::ServerCompletionQueue* const queue_;
  CompletionLoop* loop_ = nullptr;
  const Method method_;
  grpc::ServerContext context_;
  MonotonicTime arrival_;
  bool awaited_ = false;  // by a drain; set at the arrival
  size_t request_bytes_ = 0;
  std::string client_;
  std::shared_ptr<const AccessList> access_;  // by which it was admitted
  // Written by End, read when its Finish has come through the queue.
  absl::Status status_;
  grpc::StatusCode code_ = grpc::StatusCode::OK;
  size_t answer_bytes_ = 0;
  std::atomic<int> events_{2};  // still to come; the last one deletes
  MethodCompletion<Call> arrived_{this, &Call::Arrived};
  MethodCompletion<Call> finished_{this, &Call::Finished};
  MethodCompletion<Call> done_{this, &Call::Done};
};

}  // namespace gemmd
