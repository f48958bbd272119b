// The host's processor as a device.

#pragma once

#include <memory>

#include "absl/container/flat_hash_set.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/execute/job_threads.h"

namespace gemmd {

// One worker thread a stream. A worker runs its batch's tasks one by one, each
// started in its turn and ended as soon as it is computed, straight from and
// into staging, resident or shared memory: there is nothing to copy but a C
// that is not where the product will be, and one launch for many would save
// nothing.
//
// A batch of one small product (no more operations, and no more numbers, than
// 64^3) is computed where it is given, on the thread that calls Execute: the
// hand-over to a worker and the answer's way from there cost the host four
// times what the product takes. That thread is held up for microseconds: a
// kernel that took longer for such a product when it was warmed is left to the
// worker, and so is what starts within the end of another such batch, or comes
// while the caller has more to do (ThreadHasMore).
//
// One more thread copies to and from resident matrices, so that an upload does
// not wait for products; copies are done in the order in which they were asked
// for.
class CpuDevice : public Device {
 public:
  // `registry` outlives the device. `info.streams` workers are started. Warm
  // comes before Execute, or never.
  // `resident` is where resident matrices lie.
  CpuDevice(DeviceInfo info, const KernelRegistry& registry,
            std::unique_ptr<StagingPool> resident);

  const DeviceInfo& info() const override { return info_; }
  void Execute(Batch batch, BatchDone done) override;
  absl::Status Warm() override;
  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override;
  size_t resident_capacity() const override {
    return resident_->capacity_bytes();
  }
  void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
              CopyDone done) override;
  void CopyOut(const ResidentMemory& from, size_t offset, StagingBuffer to,
               CopyDone done) override;
  void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                size_t offset, size_t bytes,
                absl::AnyInvocable<void(absl::Status) &&> done) override;

 private:
  bool IsSmall(const Batch& batch) const;
  BatchReport Run(const Batch& batch);
  absl::Status LaunchAll();

  const DeviceInfo info_;
  const KernelRegistry& registry_;
  const std::unique_ptr<StagingPool> resident_;
  // Kernels that take little time for a small product; written by Warm.
  absl::flat_hash_set<const SgemmKernel*> quick_;

  // Last: they use all of the above.
  JobThreads workers_;
  JobThreads copier_;
};

}  // namespace gemmd
