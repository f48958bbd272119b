// A device's memory for requests: one region, taken at the start.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "server/execute/cuda/handles.h"
#include "server/execute/range_allocator.h"
#include "server/mutex.h"

namespace gemmd {

class DeviceMemoryPool;

// A piece of a pool, given back on destruction. Move-only. Its bytes are
// whatever was there before.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(DeviceMemoryPool* pool, std::byte* data, size_t size)
      : pool_(pool), data_(data), size_(size) {}
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept;
  ~DeviceBlock() { Reset(); }

  void Reset();
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  DeviceMemoryPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Never grows: no request ever waits for cudaMalloc (I3). A stream-ordered
// allocator is not needed, since a block is freed only once its batch's last
// event has been seen.
//
// Thread-safe. Outlives its blocks.
class DeviceMemoryPool {
 public:
  // `bytes` of the present device, or four fifths of its free memory if that is
  // less.
  static absl::StatusOr<std::unique_ptr<DeviceMemoryPool>> Create(size_t bytes);

  // 256-byte aligned; nullopt if there is no such piece free.
  std::optional<DeviceBlock> Allocate(size_t bytes);

  size_t capacity() const { return capacity_; }
  size_t used() const;

 private:
  friend class DeviceBlock;
  DeviceMemoryPool(DeviceMemory memory, size_t bytes);
  void Release(std::byte* data, size_t size);

  const DeviceMemory memory_;
  const size_t capacity_;
  mutable Mutex mu_;
  RangeAllocator ranges_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
