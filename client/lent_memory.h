// Memory of the caller that the network reads from.

#pragma once

#include <grpcpp/support/slice.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>

namespace gemmd::client {

// Counts the slices of somebody else's memory that are still in gRPC's hands. A
// call that ended (at its deadline, say) may have slices on their way into a
// socket; the memory may go only when all are back.
//
// Thread-safety: any thread may call any method.
class LentMemory {
 public:
  LentMemory() : state_(std::make_shared<State>()) {}

  // A slice that refers to [data, data + bytes), which must live until
  // AllReturned().
  grpc::Slice Lend(const void* data, size_t bytes);

  bool AllReturned() const;
  void WaitUntilAllReturned();

 private:
  struct State {
    std::mutex mu;
    std::condition_variable returned;
    int lent = 0;  // guarded by mu
  };
  static void Return(void* held_state);

  std::shared_ptr<State> state_;
};

}  // namespace gemmd::client
