// A batch on its way over a device: memory, copies, launches, and the end of
// its tasks.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/execute/backend.h"
#include "server/execute/batch_forms.h"
#include "server/execute/cuda/device_memory_pool.h"
#include "server/execute/cuda/lease.h"
#include "server/execute/cuda/task_placement.h"
#include "server/monotonic_time.h"

namespace gemmd {

// Reserve, then Enqueue, then Poll until it is true, then Finish. Only `Finish`
// calls anybody; nothing waits for the device.
//
// Thread-compatible; the device is the calling thread's.
class CudaBatch {
 public:
  CudaBatch(Batch batch, Device::BatchDone done, int device);

  enum class Reserved {
    kYes,
    kWait,  // other batches hold the memory: try again when one has ended
  };
  // Takes device memory for the whole batch. With `alone`, when nobody else
  // will give any back, tasks that find none are ended: with OUT_OF_RANGE those
  // that never could, else with RESOURCE_EXHAUSTED, the youngest first.
  Reserved Reserve(DeviceMemoryPool& pool, bool alone);

  // Starts the tasks that are still wanted and puts their copies and launches
  // on the lease's stream.
  void Enqueue(Lease* lease);

  // True once the device is done with it, or has failed.
  bool Poll();

  // Ends all tasks and gives the memory back. Then Report may be called.
  void Finish();

  // Ends all tasks for a device that was lost before they began, instead of
  // Reserve to Finish.
  void Fail(const absl::Status& device_status);

  // Tells `done`. The last call.
  void Report();

  Lease* lease() const { return lease_; }
  // Not OK: the device's fault; it cannot be trusted any more.
  const absl::Status& device_status() const { return report_.status; }
  MonotonicTime enqueued() const { return enqueued_; }

 private:
  // A task that runs, and where it lies on the device.
  struct Member {
    Task* task;
    TaskPlacement placement;
    absl::Status status;  // of its launch
  };

  void Measure();
  void RefuseWhatNeverFits(size_t capacity);
  void StartMembers();
  absl::Status EnqueueAll();
  absl::Status CopyIn();
  absl::Status Launch();
  absl::Status LaunchAlone(const TaskSpec& spec, const SgemmArgs& args,
                           const LaunchContext& context);
  absl::Status CopyOut();
  absl::Status CheckLaunch(const absl::Status& launch);
  void MeasureStages();
  void EndMembers();

  Batch batch_;
  Device::BatchDone done_;
  BatchReport report_;
  DeviceBlock block_;
  std::byte* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  std::optional<size_t> bytes_needed_;  // once it has been measured
  std::vector<Member> members_;
  BatchForms forms_;
  bool begun_ = false;  // something of it is on the stream
  Lease* lease_ = nullptr;
  MonotonicTime enqueued_{};
};

}  // namespace gemmd
