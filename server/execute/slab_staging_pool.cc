#include "server/execute/slab_staging_pool.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "server/execute/staging_errors.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<SlabStagingPool>> SlabStagingPool::Create(
    const SlabStagingPoolOptions& options, AllocateSlab allocate) {
  auto pool =
      absl::WrapUnique(new SlabStagingPool(options, std::move(allocate)));
  absl::Status status =
      pool->AddSlab(std::min(pool->slab_bytes_, pool->capacity_));
  if (!status.ok()) return status;
  return pool;
}

SlabStagingPool::SlabStagingPool(const SlabStagingPoolOptions& options,
                                 AllocateSlab allocate)
    : capacity_(options.capacity / RangeAllocator::kAlignment *
                RangeAllocator::kAlignment),
      slab_bytes_(RangeAllocator::RoundUp(options.slab_bytes)),
      allocate_(std::move(allocate)) {
  grow_thread_ = std::thread([this] { GrowLoop(); });
  pthread_setname_np(grow_thread_.native_handle(), "gemmd-grow");
}

SlabStagingPool::~SlabStagingPool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    grow_.Signal();
  }
  grow_thread_.join();
}

absl::StatusOr<StagingBuffer> SlabStagingPool::Allocate(size_t bytes) {
  if (bytes == 0) return StagingBuffer();
  if (bytes > capacity_) return StagingTooLargeError(bytes, capacity_);
  size_t used;
  {
    MutexLock lock(&mu_);
    if (std::byte* const data = TakeFromSlabs(bytes)) {
      used_ += RangeAllocator::RoundUp(bytes);
      if (used_ > in_slabs_ / 2 && in_slabs_ < capacity_) {
        AskForSlab(std::min(slab_bytes_, capacity_ - in_slabs_));
      }
      return StagingBuffer(this, data, bytes);
    }
    AskForSlab(std::min(std::max(slab_bytes_, RangeAllocator::RoundUp(bytes)),
                        capacity_));
    used = used_;
  }
  return StagingFullError(bytes, used, capacity_);
}

std::byte* SlabStagingPool::TakeFromSlabs(size_t bytes) {
  for (auto& [base, slab] : slabs_) {
    if (const std::optional<size_t> offset = slab.ranges.Allocate(bytes)) {
      return base + *offset;
    }
  }
  return nullptr;
}

void SlabStagingPool::Release(std::byte* data, size_t size) {
  MutexLock lock(&mu_);
  const auto it = std::prev(slabs_.upper_bound(data));
  it->second.ranges.Free(data - it->first, size);
  used_ -= RangeAllocator::RoundUp(size);
}

size_t SlabStagingPool::used_bytes() const {
  MutexLock lock(&mu_);
  return used_;
}

int SlabStagingPool::slab_allocations() const {
  MutexLock lock(&mu_);
  return slab_allocations_;
}

size_t SlabStagingPool::slab_bytes() const {
  MutexLock lock(&mu_);
  return in_slabs_;
}

void SlabStagingPool::AskForSlab(size_t bytes) {
  if (bytes <= wanted_slab_) return;
  wanted_slab_ = bytes;
  grow_.Signal();
}

SlabStagingPool::Slabs SlabStagingPool::TakeEmptySlabsFor(size_t bytes) {
  Slabs taken;
  for (auto it = slabs_.begin();
       it != slabs_.end() && in_slabs_ + bytes > capacity_;) {
    if (it->second.ranges.used() > 0) {
      ++it;
      continue;
    }
    in_slabs_ -= it->second.ranges.capacity();
    taken.insert(slabs_.extract(it++));
  }
  return taken;
}

absl::Status SlabStagingPool::AddSlab(size_t bytes) {
  Slabs emptied;
  {
    MutexLock lock(&mu_);
    emptied = TakeEmptySlabsFor(bytes);
    if (in_slabs_ + bytes > capacity_) {
      // Not enough is empty: what was taken goes back.
      for (const auto& [base, slab] : emptied) {
        in_slabs_ += slab.ranges.capacity();
      }
      slabs_.merge(emptied);
      return absl::ResourceExhaustedError("the slabs are in use");
    }
    in_slabs_ += bytes;  // also keeps others from growing into it
    ++slab_allocations_;
  }
  emptied.clear();
  absl::StatusOr<SlabMemory> memory = allocate_(bytes);
  MutexLock lock(&mu_);
  if (!memory.ok()) {
    in_slabs_ -= bytes;
    return memory.status();
  }
  std::byte* const base = memory->get();
  slabs_.emplace(base, Slab{*std::move(memory), RangeAllocator(bytes)});
  return absl::OkStatus();
}

void SlabStagingPool::GrowLoop() {
  while (true) {
    size_t bytes;
    {
      MutexLock lock(&mu_);
      while (wanted_slab_ == 0 && !stopping_) grow_.Wait(&mu_);
      if (stopping_) return;
      bytes = wanted_slab_;
    }
    // A failure is met again, and said, by the next request without room.
    AddSlab(bytes).IgnoreError();
    MutexLock lock(&mu_);
    if (wanted_slab_ == bytes) wanted_slab_ = 0;  // else more was asked for
  }
}

}  // namespace gemmd
