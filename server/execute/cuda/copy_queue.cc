#include "server/execute/cuda/copy_queue.h"

#include <utility>

#include "kernels/cuda/cuda_status.h"

namespace gemmd {
namespace {

// A chunk of 1 MiB takes 20 us: some hundred of them outlast any pause of the
// device's thread.
constexpr int kMaxStarted = 128;

}  // namespace

absl::StatusOr<CopyQueue> CopyQueue::Create() {
  CopyQueue queue;
  absl::StatusOr<CudaStream> stream = MakeStream();
  if (!stream.ok()) return stream.status();
  queue.stream_ = *std::move(stream);
  for (int i = 0; i < kMaxStarted; ++i) {
    absl::StatusOr<CudaEvent> event = MakeEvent();
    if (!event.ok()) return event.status();
    queue.free_events_.push_back(*std::move(event));
  }
  return queue;
}

absl::Status CopyQueue::Start(Copy copy) {
  Started started = {std::move(copy), std::move(free_events_.back())};
  free_events_.pop_back();
  absl::Status status;
  if (started.copy.bytes > 0) {
    // The addresses tell which way, and between which devices.
    status = CudaStatus(
        cudaMemcpyAsync(started.copy.to, started.copy.from, started.copy.bytes,
                        cudaMemcpyDefault, stream_.get()),
        "cudaMemcpyAsync");
  }
  if (status.ok()) {
    status = CudaStatus(cudaEventRecord(started.end.get(), stream_.get()),
                        "cudaEventRecord");
  }
  started_.push_back(std::move(started));
  return status;
}

absl::StatusOr<bool> CopyQueue::Advance() {
  bool progress = false;
  while (!started_.empty()) {
    const cudaError_t error = cudaEventQuery(started_.front().end.get());
    if (error == cudaErrorNotReady) {
      cudaGetLastError();  // it counts as an error of the next launch else
      break;
    }
    absl::Status status = CudaStatus(error, "cudaEventQuery");
    if (!status.ok()) return status;
    Started done = std::move(started_.front());
    started_.pop_front();
    free_events_.push_back(std::move(done.end));
    std::move(done.copy.done)(absl::OkStatus());
    progress = true;
  }
  while (!waiting_.empty() && !free_events_.empty()) {
    Copy copy = std::move(waiting_.front());
    waiting_.pop_front();
    absl::Status status = Start(std::move(copy));
    if (!status.ok()) return status;
    progress = true;
  }
  return progress;
}

void CopyQueue::Fail(const absl::Status& status) {
  if (empty()) return;
  cudaStreamSynchronize(stream_.get());
  while (!started_.empty()) {
    Started failed = std::move(started_.front());
    started_.pop_front();
    free_events_.push_back(std::move(failed.end));
    std::move(failed.copy.done)(status);
  }
  while (!waiting_.empty()) {
    Copy failed = std::move(waiting_.front());
    waiting_.pop_front();
    std::move(failed.done)(status);
  }
}

}  // namespace gemmd
