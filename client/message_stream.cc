#include "client/message_stream.h"

#include "proto/status.h"

namespace gemmd::client {

MessageStream::MessageStream(const Session& session, const char* method,
                             Operation* operation)
    : session_(session),
      operation_(operation),
      connection_(session.connections().Choose()) {
  connection_->in_flight.fetch_add(1, std::memory_order_relaxed);
  session.identity().AddTo(&context_);
  const absl::Duration remaining = operation->remaining();
  if (remaining < absl::InfiniteDuration()) {
    context_.set_deadline(absl::ToChronoTime(absl::Now() + remaining));
  }
  stream_ = connection_->stub.PrepareCall(&context_, method, &queue_);
  step_.emplace(operation, [this] { context_.TryCancel(); });
  Begin(&start_);
  stream_->StartCall(&start_);
  WaitFor(&start_);
}

MessageStream::~MessageStream() {
  if (finish_ == State::kIdle) {
    context_.TryCancel();
    Begin(&finish_);
    stream_->Finish(&status_, &finish_);
  }
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
  connection_->in_flight.fetch_sub(1, std::memory_order_relaxed);
}

bool MessageStream::WaitFor(State* state) {
  void* tag = nullptr;
  bool ok = false;
  while (*state == State::kPending && queue_.Next(&tag, &ok)) {
    *static_cast<State*>(tag) = ok ? State::kDone : State::kFailed;
  }
  return *state == State::kDone;
}

bool MessageStream::Write(const grpc::ByteBuffer& message) {
  if (start_ != State::kDone) return false;
  Begin(&write_);
  stream_->Write(message, &write_);
  return WaitFor(&write_);
}

void MessageStream::WritesDone() {
  if (start_ != State::kDone) return;
  Begin(&write_);
  stream_->WritesDone(&write_);
  WaitFor(&write_);
}

void MessageStream::BeginRead() {
  if (start_ != State::kDone || read_ != State::kIdle) return;
  Begin(&read_);
  stream_->Read(&message_, &read_);
}

bool MessageStream::Read(grpc::ByteBuffer* message) {
  BeginRead();
  if (!WaitFor(&read_)) return false;
  connection_->answered.store(true, std::memory_order_relaxed);
  message->Swap(&message_);
  message_.Clear();
  read_ = State::kIdle;
  return true;
}

absl::Status MessageStream::Finish() {
  Begin(&finish_);
  stream_->Finish(&status_, &finish_);
  WaitFor(&finish_);
  if (status_.ok()) return absl::OkStatus();
  if (operation_->cancelled()) {
    return absl::CancelledError("cancelled by the caller");
  }
  return session_.connections().Explain(FromGrpcStatus(status_), *connection_,
                                        operation_->timeout());
}

}  // namespace gemmd::client
