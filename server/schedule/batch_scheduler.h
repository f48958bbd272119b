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
  // A device that has work and ends no batch for so long, and for ten times
  // what its work takes at its slowest besides, is stuck. --device-timeout
  MonotonicDuration device_timeout = std::chrono::seconds(60);
};

// Drives a BatchQueue with real time and real devices.
//
// Submit and the end of a batch both start what is due, on their own thread, so
// an idle device starts at once and no thread hop stands before it. One timer
// thread expires deadlines, closes delayed batches and watches over the
// devices, whatever they do.
//
// Devices: a task goes to the device that its spec names; any other to the one
// that becomes free, and of several to the one with the least to do, by CostOf.
//
// Faults: a device that reports one, or is stuck, gets no more work. What runs
// on a stuck one is ended with INTERNAL and ErrorInfo (Task::Abandon); what
// only a lost device could take, with UNAVAILABLE.
//
// Thread-safe. No lock is held while a device is called or a task is ended
// (I2).
class BatchScheduler {
 public:
  // `devices` (in the order of their indices) and `observer` outlive the
  // scheduler; observer may be null.
  static std::unique_ptr<BatchScheduler> Create(
      const BatchSchedulerOptions& options,
      std::span<const std::unique_ptr<Device>> devices,
      BatchObserver* observer);

  // Waits for the batches that run, on a stuck device too: see stuck().
  virtual ~BatchScheduler() = default;

  // Takes the task: it will end exactly once. With `hold`, the caller looks for
  // more requests at once and calls Release when it finds none: see
  // BatchQueue::Push. Not OK (DEADLINE_EXCEEDED,
  // UNAVAILABLE once draining or when the devices are lost that could take it):
  // the task was not taken and not ended. Never blocks.
  virtual absl::Status Submit(std::shared_ptr<Task> task,
                              bool hold = false) = 0;
  virtual void Release() = 0;

  // Refuses new tasks, runs what waits and returns when all have ended or at
  // `deadline`; what is still queued then is ended with UNAVAILABLE. True if
  // nothing was cut off. What was abandoned on a stuck device has ended.
  virtual bool Drain(MonotonicTime deadline) = 0;

  // To be told of a fault of `device` that something else than a batch has met:
  // as if a batch had reported it.
  virtual void DeviceFailed(int device, const absl::Status& status) = 0;

  // A device is stuck and may still use the memory of its tasks: whoever
  // destroys scheduler and devices may wait for ever.
  virtual bool stuck() const = 0;

  // What `device` has still to do, running and bound to it, by CostOf: for
  // choosing where resident operands are used.
  virtual double outstanding(int device) const = 0;

  virtual int queued_requests() const = 0;
  virtual size_t queued_bytes() const = 0;
};

}  // namespace gemmd
