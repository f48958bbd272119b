#include "client/lent_memory.h"

namespace gemmd::client {

grpc::Slice LentMemory::Lend(const void* data, size_t bytes) {
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    ++state_->lent;
  }
  // gRPC only reads what it sends.
  return grpc::Slice(const_cast<void*>(data), bytes, &Return,
                     new std::shared_ptr<State>(state_));
}

bool LentMemory::AllReturned() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->lent == 0;
}

void LentMemory::WaitUntilAllReturned() {
  std::unique_lock<std::mutex> lock(state_->mu);
  state_->returned.wait(lock, [this] { return state_->lent == 0; });
}

void LentMemory::Return(void* held_state) {
  std::unique_ptr<std::shared_ptr<State>> state(
      static_cast<std::shared_ptr<State>*>(held_state));
  std::lock_guard<std::mutex> lock((*state)->mu);
  if (--(*state)->lent == 0) (*state)->returned.notify_all();
}

}  // namespace gemmd::client
