#include "server/execute/cpu/heap_staging_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "server/execute/staging_errors.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<HeapStagingPool>> HeapStagingPool::Create(
    size_t capacity) {
  const size_t mapped = std::max(capacity, RangeAllocator::kAlignment);
  void* const base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", capacity,
                     " bytes of staging memory; a smaller --pinned-pool-bytes "
                     "may do (errno ",
                     errno, ")"));
  }
  // A page fault for 2 MiB instead of 512 of them; a refusal costs nothing.
  madvise(base, mapped, MADV_HUGEPAGE);
  return absl::WrapUnique(
      new HeapStagingPool(static_cast<std::byte*>(base), mapped, capacity));
}

HeapStagingPool::HeapStagingPool(std::byte* base, size_t mapped,
                                 size_t capacity)
    : base_(base),
      mapped_(mapped),
      ranges_capacity_(capacity / RangeAllocator::kAlignment *
                       RangeAllocator::kAlignment),
      ranges_(capacity) {}

HeapStagingPool::~HeapStagingPool() { munmap(base_, mapped_); }

absl::StatusOr<StagingBuffer> HeapStagingPool::Allocate(size_t bytes) {
  if (bytes == 0) return StagingBuffer();
  if (bytes > ranges_capacity_) {
    return StagingTooLargeError(bytes, ranges_capacity_);
  }
  std::optional<size_t> offset;
  size_t used;
  {
    MutexLock lock(&mu_);
    offset = ranges_.Allocate(bytes);
    used = ranges_.used();
  }
  if (!offset) return StagingFullError(bytes, used, ranges_capacity_);
  return StagingBuffer(this, base_ + *offset, bytes);
}

void HeapStagingPool::Release(std::byte* data, size_t size) {
  MutexLock lock(&mu_);
  ranges_.Free(data - base_, size);
}

size_t HeapStagingPool::used_bytes() const {
  MutexLock lock(&mu_);
  return ranges_.used();
}

void HeapStagingPool::Prefault(size_t bytes) {
  std::memset(base_, 0, std::min(bytes, ranges_capacity_));
}

}  // namespace gemmd
