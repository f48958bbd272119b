// The staging memory of the CPU backend: one anonymous mapping, touched as it
// is used.

#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "server/execute/range_allocator.h"
#include "server/execute/staging.h"
#include "server/mutex.h"

namespace gemmd {

// Maps its whole capacity once, so that no request waits for a system call, and
// reserves none of it: the process grows by what is really used. Pages stay
// once they were touched; the lowest are used first.
class HeapStagingPool : public StagingPool {
 public:
  // RESOURCE_EXHAUSTED if the address space cannot be had.
  static absl::StatusOr<std::unique_ptr<HeapStagingPool>> Create(
      size_t capacity);

  ~HeapStagingPool() override;

  absl::StatusOr<StagingBuffer> Allocate(size_t bytes) override;
  size_t used_bytes() const override;
  size_t capacity_bytes() const override { return ranges_capacity_; }

  // Touches the first `bytes`, so that early requests meet no page fault.
  // Needs: nothing is handed out yet.
  void Prefault(size_t bytes);

 private:
  HeapStagingPool(std::byte* base, size_t mapped, size_t capacity);
  void Release(std::byte* data, size_t size) override;

  std::byte* const base_;
  const size_t mapped_;
  const size_t ranges_capacity_;
  mutable Mutex mu_;
  RangeAllocator ranges_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
