// Copies beside the batches: to and from resident matrices.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <deque>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/execute/cuda/handles.h"

namespace gemmd {

// A stream of its own, on which copies run in the order in which they are
// added. So many are on the stream at a time that it does not run dry; the rest
// waits here.
//
// Thread-compatible; the device is the calling thread's. Only Advance and Fail
// call anybody.
class CopyQueue {
 public:
  struct Copy {
    std::byte* to;
    const std::byte* from;  // pinned, or of any device
    size_t bytes;
    absl::AnyInvocable<void(const absl::Status&) &&> done;
  };

  // Of the present device.
  static absl::StatusOr<CopyQueue> Create();

  void Add(Copy copy) { waiting_.push_back(std::move(copy)); }

  // Tells of copies that are done and starts others, waiting for none. True if
  // there was something to do. An error is the device's fault: then Fail.
  absl::StatusOr<bool> Advance();

  // Ends all with `status`, once the device has let go of their memory.
  void Fail(const absl::Status& status);

  bool empty() const { return started_.empty() && waiting_.empty(); }

 private:
  struct Started {
    Copy copy;
    CudaEvent end;
  };

  absl::Status Start(Copy copy);

  CudaStream stream_;
  std::vector<CudaEvent> free_events_;
  std::deque<Started> started_;
  std::deque<Copy> waiting_;
};

}  // namespace gemmd
