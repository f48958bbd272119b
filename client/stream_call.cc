#include "client/stream_call.h"

#include <algorithm>
#include <utility>

#include "client/stream_wire.h"
#include "proto/status.h"

namespace gemmd::client {

StreamCall::StreamCall(const Connections& connections,
                       std::shared_ptr<Connection> connection,
                       const Identity& identity, grpc::CompletionQueue* queue,
                       absl::Time until)
    : connections_(connections),
      connection_(std::move(connection)),
      until_(until) {
  identity.AddTo(&context_);
  stream_ = connection_->stub.PrepareCall(
      &context_, "/gemmd.v1.GemmService/SgemmStream", queue);
  stream_->StartCall(Expect(kStarted));
}

void StreamCall::Add(uint64_t sequence, StreamItem item) {
  connection_->in_flight.fetch_add(1, std::memory_order_relaxed);
  const absl::Time deadline = absl::Now() + item.operation->remaining();
  items_.emplace(sequence,
                 Pending{.item = std::move(item), .deadline = deadline});
  unsent_.push_back(sequence);
  Write();
}

bool StreamCall::Cancel(uint64_t sequence) {
  const auto item = items_.find(sequence);
  if (item == items_.end()) return false;
  item->second.cancelled = true;
  return true;
}

void StreamCall::SendNoMore() {
  sending_done_ = true;
  Write();
}

void StreamCall::Write() {
  if (!started_ || writing_ || broken_ || finishing_) return;
  while (!unsent_.empty()) {
    const uint64_t sequence = unsent_.front();
    unsent_.pop_front();
    const auto item = items_.find(sequence);
    if (item == items_.end()) continue;
    writing_ = true;
    stream_->Write(EncodeStreamItem(sequence, item->second.item.request),
                   Expect(kWritten));
    return;
  }
  if (sending_done_ && !told_done_) {
    writing_ = told_done_ = true;
    stream_->WritesDone(Expect(kWritten));
  }
}

void StreamCall::Take(Event event, bool ok, std::vector<EndedItem>* ended) {
  --events_;
  switch (event) {
    case kStarted:
      started_ = ok;
      if (!ok) return Finish();
      stream_->Read(&answer_, Expect(kRead));
      return Write();
    case kWritten:
      writing_ = false;
      broken_ = broken_ || !ok;
      return Write();
    case kRead:
      if (!ok) return Finish();
      TakeMessage(ended);
      answer_.Clear();
      stream_->Read(&answer_, Expect(kRead));
      return;
    case kFinished:
      finished_ = true;
      break;
  }
  absl::Status status = FromGrpcStatus(status_);
  if (status.ok()) status = absl::UnavailableError("the stream has ended");
  while (!items_.empty()) {
    const absl::Duration timeout =
        items_.begin()->second.item.operation->timeout();
    End(items_.begin(), connections_.Explain(status, *connection_, timeout),
        ended);
  }
}

void StreamCall::TakeMessage(std::vector<EndedItem>* ended) {
  absl::StatusOr<StreamAnswer> answer = DecodeStreamAnswer(answer_);
  if (!answer.ok()) return TryCancel();
  connection_->answered.store(true, std::memory_order_relaxed);
  const auto item = items_.find(answer->sequence);
  if (item != items_.end()) End(item, std::move(answer->result), ended);
}

void StreamCall::Finish() {
  sending_done_ = true;
  finishing_ = true;
  stream_->Finish(&status_, Expect(kFinished));
}

void StreamCall::End(Items::iterator item,
                     absl::StatusOr<grpc::ByteBuffer> result,
                     std::vector<EndedItem>* ended) {
  connection_->in_flight.fetch_sub(1, std::memory_order_relaxed);
  ended->push_back({std::move(item->second.item), std::move(result)});
  items_.erase(item);
}

void StreamCall::EndLate(absl::Time now, std::vector<EndedItem>* ended) {
  if (now >= until_ && !sending_done_) SendNoMore();
  for (auto next = items_.begin(); next != items_.end();) {
    const auto item = next++;
    if (item->second.cancelled) {
      End(item, absl::CancelledError("cancelled by the caller"), ended);
    } else if (item->second.deadline <= now) {
      const absl::Duration timeout = item->second.item.operation->timeout();
      End(item,
          connections_.Explain(absl::DeadlineExceededError(""), *connection_,
                               timeout),
          ended);
    }
  }
}

absl::Time StreamCall::next_deadline() const {
  absl::Time next = sending_done_ ? absl::InfiniteFuture() : until_;
  for (const auto& [sequence, item] : items_) {
    next = std::min(next, item.deadline);
  }
  return next;
}

}  // namespace gemmd::client
