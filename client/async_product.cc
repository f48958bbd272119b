#include "client/async_product.h"

#include <utility>

#include "absl/random/random.h"
#include "client/call.h"
#include "client/lent_memory.h"
#include "client/retry.h"

namespace gemmd::client {

AsyncProduct::AsyncProduct(Session* session, const SgemmCall& call,
                           std::shared_ptr<Operation> operation, Done done)
    : session_(session),
      operation_(std::move(operation)),
      product_(std::in_place, session, call, operation_.get()),
      done_(std::move(done)) {}

void AsyncProduct::Begin() {
  session_->Enter(operation_);
  absl::Status status = product_->Prepare();
  if (status.ok() && product_->IsOneRequest()) {
    ProductStream* const stream =
        product_->IsSmall() ? session_->stream() : nullptr;
    return stream != nullptr ? BeginItem(stream) : BeginRequest();
  }
  session_->background().Run([self = shared_from_this(), status] {
    self->Ended(status.ok() ? self->product_->Run()
                            : absl::StatusOr<SgemmAnswer>(status));
  });
}

void AsyncProduct::BeginItem(ProductStream* stream) {
  LentMemory lent;
  grpc::Slice request;  // a copy
  if (!product_->Encode(&lent).DumpToSingleSlice(&request).ok()) {
    return BeginRequest();
  }
  const uint64_t sequence = stream->NewSequence();
  request_.emplace(operation_.get(),
                   [stream, sequence] { stream->Cancel(sequence); });
  stream->Begin(sequence,
                {.request = std::move(request),
                 .operation = operation_.get(),
                 .done = [self = shared_from_this()](
                             absl::StatusOr<grpc::ByteBuffer> result) {
                   self->request_.reset();
                   self->ItemEnded(std::move(result));
                 }});
}

void AsyncProduct::ItemEnded(absl::StatusOr<grpc::ByteBuffer> result) {
  absl::BitGen random;
  const std::optional<absl::Duration> delay =
      result.ok() || operation_->cancelled()
          ? std::nullopt
          : NextRetryDelay(session_->options().retry, result.status(),
                           /*attempts=*/1, operation_->remaining(),
                           absl::Uniform(random, 0.0, 1.0));
  if (delay.has_value()) return BeginRequest(/*attempts=*/1, *delay);
  RequestEnded(std::move(result), /*attempts=*/1);
}

void AsyncProduct::BeginRequest(int attempts, absl::Duration delay) {
  Call::Parts parts = product_->CallParts();
  parts.attempts = attempts;
  parts.delay = delay;
  parts.done = [self = shared_from_this()](
                   absl::StatusOr<grpc::ByteBuffer> result, int attempts) {
    self->request_.reset();
    self->RequestEnded(std::move(result), attempts);
  };
  auto call = std::make_shared<Call>(std::move(parts));
  request_.emplace(operation_.get(), [call = std::weak_ptr<Call>(call)] {
    if (const auto running = call.lock()) running->Cancel();
  });
  session_->queue().Begin(std::move(call));
}

void AsyncProduct::RequestEnded(absl::StatusOr<grpc::ByteBuffer> result,
                                int attempts) {
  absl::StatusOr<SgemmAnswer> answer =
      result.ok() ? product_->Decode(*std::move(result), attempts)
                  : absl::StatusOr<SgemmAnswer>(result.status());
  if (!product_->MayRestore(answer.status())) return Ended(std::move(answer));
  session_->background().Run(
      [self = shared_from_this(), failed = answer.status()] {
        self->Ended(self->product_->Run(failed));
      });
}

void AsyncProduct::Ended(absl::StatusOr<SgemmAnswer> answer) {
  done_(std::move(answer));
  done_ = nullptr;
  product_.reset();  // drops what it had on the server
  session_->Leave(operation_);
}

}  // namespace gemmd::client
