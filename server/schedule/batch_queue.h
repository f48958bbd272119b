// Which waiting tasks run together and when: the batching policy, alone.
//
// Pure: no thread, no lock, no clock. Time and the device's state are
// parameters, so every decision can be tested by a table.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "server/monotonic_time.h"
#include "server/schedule/task.h"

namespace gemmd {

// Why a batch was closed.
enum class FlushReason {
  kFull,   // it reached a limit
  kTimer,  // its first task waited for max_queue_delay
  kIdle,   // a stream was free and there is no delay to wait for
  kDrain,  // the server is shutting down
};

// Tasks that one lease runs: all of one kernel, all of one shape. They are one
// launch if the kernel is batch invariant, else back to back (I6).
struct Batch {
  uint64_t id = 0;
  const SgemmKernel* kernel = nullptr;
  FlushReason reason = FlushReason::kIdle;
  std::vector<std::shared_ptr<Task>> tasks;
};

struct BatchQueueOptions {
  // Tasks in a batch, at most. --max-batch-requests
  int max_batch_requests = 64;
  // Input and output bytes of a batch, at most; one larger task runs alone.
  size_t max_batch_bytes = size_t{256} << 20;
  // 2mnk of a batch, at most; one larger task runs alone. Bounds how long a
  // small request can wait for its batch-mates.
  double max_batch_flops = 2e11;
  // How long the first task of a batch may wait for others while a stream is
  // free. 0: not at all, so a batch forms only while the device is busy.
  // --max-queue-delay
  MonotonicDuration max_queue_delay{0};
  // Waiting tasks and their bytes, at most. --queue-max-requests,
  // --queue-max-bytes
  int max_requests = 4096;
  size_t max_bytes = size_t{4} << 30;
};

// Tasks waiting for a device, oldest first within a priority.
//
// Latency: with a free stream, a task waits at most max_queue_delay before it
// is in a batch that Pop returns; without one, until every task before it that
// is not of its own batch has been popped.
//
// Thread-compatible: the owner locks.
class BatchQueue {
 public:
  explicit BatchQueue(const BatchQueueOptions& options);

  // Adds a task. RESOURCE_EXHAUSTED (QuotaFailure naming the flag, RetryInfo)
  // when a limit is reached, DEADLINE_EXCEEDED when its deadline is not after
  // `now`; then the task is the caller's still, and not ended.
  absl::Status Push(std::shared_ptr<Task> task, MonotonicTime now);

  // The next batch for a free stream, or one with no tasks if nothing is due.
  // Tasks that have ended are dropped; those past their deadline are left to
  // TakeExpired. Never mixes kernels or shapes; leads with the oldest
  // interactive task, else the oldest bulk one (which goes first all the same
  // once it has been passed over kMaxBulkPasses times).
  Batch Pop(MonotonicTime now, bool draining);

  // Removes the tasks whose deadline is not after `now`.
  std::vector<std::shared_ptr<Task>> TakeExpired(MonotonicTime now);

  // Removes all.
  std::vector<std::shared_ptr<Task>> TakeAll();

  // When Pop or TakeExpired may next have something without a Push; kNever if
  // never. `stream_free` tells whether a batch could start.
  MonotonicTime NextEvent(bool stream_free) const;

  int requests() const;
  size_t bytes() const;

  static constexpr int kMaxBulkPasses = 8;

  // (The implementer adds the private part.)
};

}  // namespace gemmd
