#include "server/rpc/stream_items.h"

#include <utility>

namespace gemmd {

bool StreamItems::HasRoom() const {
  const size_t count = items_.size() + answers_.size();
  return parked_.empty() && count < static_cast<size_t>(max_items_) &&
         (count == 0 || bytes_ < max_bytes_);
}

void StreamItems::Add(StreamItemPtr item) {
  bytes_ += item->bytes;
  StreamItem* const key = item.get();
  items_.emplace(key, std::move(item));
}

void StreamItems::Discard(StreamItem* item) {
  bytes_ -= item->bytes;
  items_.erase(item);
}

void StreamItems::SetStarted(StreamItem* item, bool started) {
  item->started = started;
  started_ += started ? 1 : -1;
}

bool StreamItems::Park(StreamItemPtr item) {
  if (started_ == 0) return false;
  parked_.push_front(std::move(item));
  return true;
}

StreamItemPtr StreamItems::TakeParked() {
  if (parked_.empty()) return nullptr;
  StreamItemPtr item = std::move(parked_.front());
  parked_.pop_front();
  return item;
}

std::deque<StreamItemPtr> StreamItems::TakeAllParked() {
  return std::exchange(parked_, {});
}

StreamItemPtr StreamItems::Answer(StreamItem* item, grpc::ByteBuffer message) {
  const auto found = items_.find(item);
  StreamItemPtr owner = std::move(found->second);
  items_.erase(found);
  bytes_ += message.Length();
  const size_t bytes = item->bytes + message.Length();
  answers_.push_back({message, bytes, item->started});
  return owner;
}

grpc::ByteBuffer StreamItems::TakeMessage() {
  grpc::ByteBuffer message;
  message.Swap(&answers_.front().message);
  return message;
}

void StreamItems::Written() {
  Free(answers_.front());
  answers_.pop_front();
}

void StreamItems::DropAnswers(size_t kept) {
  while (answers_.size() > kept) {
    Free(answers_.back());
    answers_.pop_back();
  }
}

void StreamItems::Free(const Outgoing& answer) {
  bytes_ -= answer.bytes;
  if (answer.started) --started_;
}

std::vector<StreamItemPtr> StreamItems::unanswered() const {
  std::vector<StreamItemPtr> items;
  for (const auto& [key, item] : items_) items.push_back(item);
  return items;
}

}  // namespace gemmd
