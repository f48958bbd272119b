#include "client/product_stream.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace gemmd::client {

ProductStream::ProductStream(const Connections* connections, int connection,
                             const Identity* identity, absl::Duration max_age)
    : connections_(connections),
      connection_(connection),
      identity_(identity),
      max_age_(max_age),
      thread_([this] { Run(); }) {}

ProductStream::~ProductStream() {
  {
    std::unique_lock<std::mutex> lock(mu_);
    for (const auto& call : calls_) call->TryCancel();
    call_gone_.wait(lock, [this] { return calls_.empty(); });
    alarm_.reset();
  }
  queue_.Shutdown();
  thread_.join();
}

uint64_t ProductStream::NewSequence() {
  return next_sequence_.fetch_add(1, std::memory_order_relaxed);
}

StreamCall* ProductStream::Current() {
  if (!calls_.empty()) {
    StreamCall* const newest = calls_.back().get();
    if (newest->takes_items()) return newest;
    newest->SendNoMore();
  }
  const absl::Time until = absl::Now() + max_age_;
  calls_.push_back(std::make_unique<StreamCall>(*connections_,
                                                connections_->at(connection_),
                                                *identity_, &queue_, until));
  WakeAt(until);
  return calls_.back().get();
}

void ProductStream::Begin(uint64_t sequence, StreamItem item) {
  Operation* const operation = item.operation;
  const absl::Time deadline = absl::Now() + operation->remaining();
  {
    std::lock_guard<std::mutex> lock(mu_);
    Current()->Add(sequence, std::move(item));
    WakeAt(deadline);
  }
  // A cancellation before this found nothing.
  if (operation->cancelled()) Cancel(sequence);
}

void ProductStream::Cancel(uint64_t sequence) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& call : calls_) {
    if (call->Cancel(sequence)) return WakeAt(absl::Now());
  }
}

void ProductStream::WakeAt(absl::Time when) {
  if (when >= wake_at_) return;
  wake_at_ = when;
  alarm_.emplace();
  alarm_->Set(&queue_, absl::ToChronoTime(when), nullptr);
}

void ProductStream::EndWhatIsLate(std::vector<EndedItem>* ended) {
  wake_at_ = absl::InfiniteFuture();
  absl::Time next = absl::InfiniteFuture();
  for (const auto& call : calls_) {
    call->EndLate(absl::Now(), ended);
    next = std::min(next, call->next_deadline());
  }
  WakeAt(next);
}

void ProductStream::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    std::vector<EndedItem> ended;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (tag == nullptr) {
        if (ok) EndWhatIsLate(&ended);  // not an alarm that was replaced
      } else {
        const auto [call, event] = *static_cast<StreamCall::Tag*>(tag);
        call->Take(event, ok, &ended);
        if (call->gone()) {
          calls_.remove_if(
              [gone = call](const auto& s) { return s.get() == gone; });
          call_gone_.notify_all();
        }
      }
    }
    for (EndedItem& item : ended) item.item.done(std::move(item.result));
  }
}

}  // namespace gemmd::client
