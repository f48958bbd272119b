#include "server/rpc/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "server/rpc/caller.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/client_status.h"
#include "server/rpc/deadline.h"
#include "server/rpc/trace_context.h"

namespace gemmd {

Call::Call(CallEnvironment* environment, grpc::ServerCompletionQueue* queue,
           Method method)
    : environment_(environment), queue_(queue), method_(method) {
  environment_->calls.Add();
  context_.AsyncNotifyWhenDone(done_.tag());
}

Call::~Call() {
  if (awaited_) environment_->awaited.Remove();
  environment_->calls.Remove();
}

MonotonicTime Call::Deadline() const {
  return MonotonicDeadline(context_.raw_deadline());
}

absl::StatusOr<std::string> Call::Admit(Role wanted) {
  const AccessFile* const file = environment_->dependencies.access;
  if (file != nullptr) access_ = file->Get();
  absl::StatusOr<Caller> caller = IdentifyCaller(context_, access_.get());
  if (!caller.ok()) return caller.status();
  client_ = std::move(caller->client);
  absl::Status allowed = CheckRole(client_, caller->roles, wanted);
  if (!allowed.ok()) return allowed;
  return client_;
}

absl::Status Call::AdmitAgain(Role wanted) {
  const AccessFile* const file = environment_->dependencies.access;
  if (file == nullptr) return absl::OkStatus();
  auto access = file->Get();
  if (access == access_) return absl::OkStatus();
  access_ = std::move(access);
  const absl::StatusOr<Caller> caller = IdentifyCaller(context_, access_.get());
  if (!caller.ok()) return caller.status();
  if (caller->client != client_) {
    return absl::UnauthenticatedError(
        "the credentials of this call are another client's by now; call again");
  }
  return CheckRole(client_, caller->roles, wanted);
}

grpc::Status Call::End(const absl::Status& status, size_t answer_bytes) {
  grpc::Status result = ToGrpcStatus(ForClient(status));
  status_ = status;  // for the log
  code_ = result.error_code();
  answer_bytes_ = answer_bytes;
  return result;
}

void Call::Arrived(bool ok) {
  if (!ok) {
    delete this;  // never began: no other event will come
    return;
  }
  loop_ = CompletionLoop::Current();
  arrival_ = MonotonicClock::now();
  // Added before `refusing` is looked at: whoever sets it and then finds none
  // knows that none is still to come. A client that asks again and again while
  // the server drains must not hold it up.
  environment_->awaited.Add();
  awaited_ = !environment_->refusing.load();
  if (!awaited_) environment_->awaited.Remove();
  request_bytes_ = RequestBytes();
  environment_->dependencies.metrics->CallStarted(method_);
  Renew();
  Begin();
}

void Call::RequestIsThere(size_t bytes) {
  arrival_ = MonotonicClock::now();
  request_bytes_ = bytes;
}

void Call::Finished(bool ok) {
  if (!ok) NoteUnheardEnd();
  const double seconds = Seconds(MonotonicClock::now() - arrival_);
  Metrics& metrics = *environment_->dependencies.metrics;
  metrics.CallCompleted(method_, code_, seconds);
  metrics.MessageSizes(method_, request_bytes_, answer_bytes_);
  // A watch has no other end than its client's or the server's.
  if (IsRequestLogged(status_) && method_ != Method::kHealthWatch) {
    EndedRequest request{.method = MethodName(method_),
                         .client = NameInLog(client_),
                         .seconds = seconds};
    DescribeEnd(&request);
    AddTraceContext(context_, &request);
    LogRequest(request, status_);
  }
  EventOver();
}

// The client, its connection or its deadline was gone before it had the answer:
// that is then how the call has ended, whatever the answer was.
void Call::NoteUnheardEnd() {
  answer_bytes_ = 0;
  if (code_ == grpc::CANCELLED || code_ == grpc::DEADLINE_EXCEEDED) return;
  const bool late = MonotonicClock::now() >= Deadline();
  code_ = late ? grpc::DEADLINE_EXCEEDED : grpc::CANCELLED;
  status_ = absl::Status(
      late ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kCancelled,
      absl::StrCat("the client was gone before it had the answer: ",
                   status_.ok() ? "the product" : status_.message()));
}

void Call::Done(bool ok) {
  if (context_.IsCancelled()) {
    Cancelled(MonotonicClock::now() >= Deadline()
                  ? absl::DeadlineExceededError("the deadline passed")
                  : absl::CancelledError("the client cancelled the call"));
  }
  EventOver();
}

void Call::EventOver() {
  // acq_rel: what each event's thread did to the call is seen by the delete.
  if (events_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

}  // namespace gemmd
