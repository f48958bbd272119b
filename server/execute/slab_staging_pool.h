// Staging memory in slabs, for memory that is dear to get: pinned memory takes
// hundreds of milliseconds a gigabyte.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/execute/range_allocator.h"
#include "server/execute/staging.h"
#include "server/mutex.h"

namespace gemmd {

// A piece of memory with its own way to be given back.
using SlabMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

struct SlabStagingPoolOptions {
  size_t capacity = size_t{4} << 30;      // of all slabs, at most
  size_t slab_bytes = size_t{256} << 20;  // one more at a time
};

// Starts with one slab and grows on a thread of its own, never on that of a
// request (I3): when more than half is in use, and when a request finds no
// room. That request is shed with RetryInfo; memory is never had from
// elsewhere in silence.
//
// A buffer larger than slab_bytes gets a slab of its own size. At the limit,
// slabs with nothing in them make way for one that is asked for; else memory
// is kept.
class SlabStagingPool : public StagingPool {
 public:
  // Called on the pool's thread, but for the first slab.
  using AllocateSlab = std::function<absl::StatusOr<SlabMemory>(size_t bytes)>;

  // The errors of `allocate` for the first slab.
  static absl::StatusOr<std::unique_ptr<SlabStagingPool>> Create(
      const SlabStagingPoolOptions& options, AllocateSlab allocate);

  ~SlabStagingPool() override;

  absl::StatusOr<StagingBuffer> Allocate(size_t bytes) override;
  size_t used_bytes() const override;
  size_t capacity_bytes() const override { return capacity_; }

  // Slabs ever asked for: does not move while requests find room (I3).
  int slab_allocations() const;
  // In all slabs now.
  size_t slab_bytes() const;

 private:
  struct Slab {
    SlabMemory memory;
    RangeAllocator ranges;
  };
  // By address. Not more than capacity / slab_bytes of them and a few.
  using Slabs = std::map<std::byte*, Slab>;

  SlabStagingPool(const SlabStagingPoolOptions& options, AllocateSlab allocate);

  void Release(std::byte* data, size_t size) override;

  std::byte* TakeFromSlabs(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AskForSlab(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes empty slabs out until one of `bytes` may be added. If the new one
  // then cannot be had, they are gone all the same, until they are asked for
  // again.
  Slabs TakeEmptySlabsFor(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AddSlab(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void GrowLoop() ABSL_LOCKS_EXCLUDED(mu_);

  const size_t capacity_;
  const size_t slab_bytes_;
  const AllocateSlab allocate_;

  mutable Mutex mu_;
  Slabs slabs_ ABSL_GUARDED_BY(mu_);
  size_t in_slabs_ ABSL_GUARDED_BY(mu_) = 0;
  size_t used_ ABSL_GUARDED_BY(mu_) = 0;  // rounded sizes
  int slab_allocations_ ABSL_GUARDED_BY(mu_) = 0;
  size_t wanted_slab_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar grow_;

  std::thread grow_thread_;  // last: it uses all of the above
};

}  // namespace gemmd
