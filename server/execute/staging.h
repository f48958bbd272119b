// Memory that the wire is copied into and the answer is sent from: pinned on
// CUDA, aligned heap on the CPU.

#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"

namespace gemmd {

class StagingPool;

// A piece of a StagingPool, given back on destruction. Move-only; empty when
// default-constructed or moved from. Its bytes are whatever was there before:
// who fills it fills or clears all that leaves the process (I7).
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(StagingPool* pool, std::byte* data, size_t size)
      : pool_(pool), data_(data), size_(size) {}
  StagingBuffer(StagingBuffer&& other) noexcept { *this = std::move(other); }
  StagingBuffer& operator=(StagingBuffer&& other) noexcept {
    if (this != &other) {
      Reset();
      pool_ = std::exchange(other.pool_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~StagingBuffer() { Reset(); }

  inline void Reset();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  float* floats(size_t byte_offset = 0) const {
    return reinterpret_cast<float*>(data_ + byte_offset);
  }

 private:
  StagingPool* pool_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Hands out StagingBuffers, 256-byte aligned. Outlives them. Thread-safe; an
// allocation takes well under 10 us and calls neither the driver nor the kernel
// of the operating system once the pool is warm (I3).
class StagingPool {
 public:
  virtual ~StagingPool() = default;

  // A buffer of exactly `bytes` (0 gives an empty buffer).
  // RESOURCE_EXHAUSTED (with QuotaFailure and RetryInfo) when the pool is full
  // now; OUT_OF_RANGE, naming the flag, when it could never hold so much.
  virtual absl::StatusOr<StagingBuffer> Allocate(size_t bytes) = 0;

  // Bytes handed out now, and at most.
  virtual size_t used_bytes() const = 0;
  virtual size_t capacity_bytes() const = 0;

 private:
  friend class StagingBuffer;
  virtual void Release(std::byte* data, size_t size) = 0;
};

inline void StagingBuffer::Reset() {
  if (pool_ != nullptr) pool_->Release(data_, size_);
  pool_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

}  // namespace gemmd
