#include "client/call.h"

#include <algorithm>
#include <utility>

#include "absl/random/random.h"
#include "client/retry.h"
#include "proto/error_details.h"
#include "proto/status.h"

namespace gemmd::client {

Call::Attempt::Attempt(std::shared_ptr<Connection> to)
    : connection(std::move(to)) {
  connection->in_flight.fetch_add(1, std::memory_order_relaxed);
}

Call::Attempt::~Attempt() {
  connection->in_flight.fetch_sub(1, std::memory_order_relaxed);
}

Call::Call(Parts&& parts) : parts_(std::move(parts)) {
  // grpc::ByteBuffer moves by copying; what stayed behind would keep the lent
  // memory.
  parts.request.Clear();  // NOLINT(bugprone-use-after-move)
}

void Call::Begin(grpc::CompletionQueue* queue) {
  std::lock_guard<std::mutex> lock(mu_);
  queue_ = queue;
  attempts_ = parts_.attempts;
  if (cancelled_ || parts_.delay > absl::ZeroDuration()) {
    WakeAfter(cancelled_ ? absl::ZeroDuration() : parts_.delay);
  } else {
    BeginAttempt();
  }
}

void Call::BeginAttempt() {
  ++attempts_;
  attempt_.emplace(parts_.connections->Choose());
  grpc::ClientContext& context = attempt_->context;
  parts_.identity->AddTo(&context);
  const absl::Duration remaining = parts_.operation->remaining();
  if (remaining < absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + remaining));
  }
  attempt_->reader = attempt_->connection->stub.PrepareUnaryCall(
      &context, parts_.method, parts_.request, queue_);
  attempt_->reader->StartCall();
  attempt_->reader->Finish(&attempt_->response, &attempt_->status, this);
}

void Call::WakeAfter(absl::Duration delay) {
  attempt_.reset();
  alarm_.emplace();
  alarm_->Set(queue_, absl::ToChronoTime(absl::Now() + delay), this);
}

bool Call::Proceed(bool ok) {
  std::lock_guard<std::mutex> lock(mu_);
  if (attempt_.has_value()) return AttemptEnded();
  if (cancelled_) {
    result_ = absl::CancelledError("cancelled by the caller");
    return true;
  }
  BeginAttempt();
  return false;
}

bool Call::AttemptEnded() {
  if (attempt_->status.ok()) {
    attempt_->connection->answered.store(true, std::memory_order_relaxed);
    result_ = std::move(attempt_->response);
  } else {
    const absl::Status status = FromGrpcStatus(attempt_->status);
    absl::BitGen random;
    const std::optional<absl::Duration> delay =
        cancelled_ || (parts_.retry_refusals_alone && !RetryDelay(status))
            ? std::nullopt
            : NextRetryDelay(parts_.retry, status, attempts_,
                             parts_.operation->remaining(),
                             absl::Uniform(random, 0.0, 1.0));
    if (delay.has_value()) {
      WakeAfter(*delay);
      return false;
    }
    result_ = cancelled_
                  ? absl::CancelledError("cancelled by the caller")
                  : parts_.connections->Explain(status, *attempt_->connection,
                                                parts_.operation->timeout());
  }
  attempt_.reset();
  parts_.request.Clear();
  return true;
}

void Call::Deliver() { parts_.done(std::move(result_), attempts_); }

void Call::Cancel() {
  std::lock_guard<std::mutex> lock(mu_);
  cancelled_ = true;
  if (attempt_.has_value()) attempt_->context.TryCancel();
  if (alarm_.has_value()) alarm_->Cancel();
}

}  // namespace gemmd::client
