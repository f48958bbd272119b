// A CUDA device: its leases, its memory, and the thread that drives them.

#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/execute/cuda/copy_queue.h"
#include "server/execute/cuda/cuda_batch.h"
#include "server/execute/cuda/device_memory_pool.h"
#include "server/execute/cuda/lease.h"
#include "server/mutex.h"

namespace gemmd {

// One thread talks to the device: it enqueues batches on free leases and polls
// the last event of those under way, so no thread waits on a stream and the
// copies and launches of different leases overlap. It spins while something is
// under way and for a moment after, naps through long products, and sleeps when
// there is nothing to do.
//
// Resident matrices lie in a pool of their own, taken at the start. They are
// copied to and from on streams of their own, one for each direction, driven by
// the same thread.
//
// After an error that the device cannot be trusted after, every batch and every
// copy fails with that error.
class CudaDevice : public Device {
 public:
  struct Memory {
    size_t request_bytes = 0;
    std::optional<size_t> resident_bytes;  // nullopt: half of what is free then
  };
  // Takes `info.streams` leases and that memory of device `ordinal`, or what
  // there is of it. `registry` and `staging` outlive it.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(
      DeviceInfo info, int ordinal, const Memory& memory,
      const KernelRegistry& registry, StagingPool& staging);

  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  void Execute(Batch batch, BatchDone done) override;
  absl::Status Warm() override;
  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override;
  size_t resident_capacity() const override;
  void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
              CopyDone done) override;
  void CopyOut(const ResidentMemory& from, size_t offset, StagingBuffer to,
               CopyDone done) override;
  void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                size_t offset, size_t bytes,
                absl::AnyInvocable<void(absl::Status) &&> done) override;

  const DeviceMemoryPool& memory() const { return *memory_; }

 private:
  using Job = absl::AnyInvocable<void()>;

  CudaDevice(DeviceInfo info, int ordinal, const KernelRegistry& registry,
             StagingPool& staging);

  absl::Status TakeMemory(const Memory& memory);
  absl::Status MakeQueues();

  void Post(Job job) ABSL_LOCKS_EXCLUDED(mu_);

  // All below run on the device's thread.
  void Drive();
  bool RunPosted();
  bool EnqueueWaiting();
  bool FinishDone();
  void AddCopy(CopyQueue& queue, CopyQueue::Copy copy);
  bool AdvanceCopies();
  bool busy() const;  // something is on the device
  // Spins, naps or sleeps until there may be something to do; false: the end.
  bool Rest();
  void End(std::unique_ptr<CudaBatch> batch);

  const DeviceInfo info_;
  const int ordinal_;
  const KernelRegistry& registry_;
  StagingPool& staging_;
  std::unique_ptr<DeviceMemoryPool> memory_;
  std::unique_ptr<DeviceMemoryPool> resident_;  // null: none was asked for
  std::vector<Lease> leases_;                   // never resized after Create

  // Of the device's thread alone.
  std::vector<Lease*> free_leases_;
  std::deque<std::unique_ptr<CudaBatch>> waiting_;
  std::vector<std::unique_ptr<CudaBatch>> running_;
  CopyQueue copies_in_;
  CopyQueue copies_out_;
  CopyQueue copies_from_others_;
  absl::Status fault_;
  MonotonicTime last_progress_{};
  MonotonicTime busy_since_{};  // or was, until last_progress_
  MonotonicDuration spin_when_idle_{0};

  Mutex mu_;
  std::deque<Job> posted_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar wake_;
  // Tells a spinning thread, without the lock, to look at the two above.
  std::atomic<bool> attention_{false};

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gemmd
