// Turns tasks into batches and batches into work for free streams.

#pragma once

#include <memory>
#include <span>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "server/execute/backend.h"
#include "server/schedule/batch_queue.h"

namespace gemmd {

// Told what the scheduler sees. Called with no lock held; must not block.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  virtual void OnBatch(const Batch& batch, const BatchReport& report) = 0;
  virtual void OnQueueDepth(int requests, size_t bytes) = 0;
  // A stream of the device was taken (1) or is about to be given back (-1): the
  // sum is never more than the device has.
  virtual void OnStreams(int device, int change) = 0;
  // A device can no longer be trusted. Once a device.
  virtual void OnDeviceFault(int device, const absl::Status& status) = 0;
};

struct BatchSchedulerOptions {
  BatchQueueOptions queue;
};

// Drives a BatchQueue with real time and real devices.
//
// Submit and the end of a batch both start what is due, on their own thread, so
// an idle device starts at once and no thread hop stands before it. One timer
// thread expires deadlines and closes delayed batches, whatever the devices do.
//
// Thread-safe. No lock is held while a device is called or a task is ended
// (I2).
class BatchScheduler {
 public:
  // `devices` and `observer` outlive the scheduler; observer may be null.
  static std::unique_ptr<BatchScheduler> Create(
      const BatchSchedulerOptions& options,
      std::span<const std::unique_ptr<Device>> devices,
      BatchObserver* observer);

  virtual ~BatchScheduler() = default;

  // Takes the task: it will end exactly once. Not OK (RESOURCE_EXHAUSTED,
  // DEADLINE_EXCEEDED, UNAVAILABLE once draining or without a sound device):
  // the task was not taken and not ended. Never blocks.
  virtual absl::Status Submit(std::shared_ptr<Task> task) = 0;

  // Refuses new tasks, runs what waits and returns when all have ended or at
  // `deadline`; what is still queued then is ended with UNAVAILABLE. True if
  // nothing was cut off.
  virtual bool Drain(MonotonicTime deadline) = 0;

  virtual int queued_requests() const = 0;
  virtual size_t queued_bytes() const = 0;
};

}  // namespace gemmd
