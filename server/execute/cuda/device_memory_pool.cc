#include "server/execute/cuda/device_memory_pool.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {

DeviceBlock& DeviceBlock::operator=(DeviceBlock&& other) noexcept {
  if (this != &other) {
    Reset();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void DeviceBlock::Reset() {
  if (pool_ != nullptr) pool_->Release(data_, size_);
  pool_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

absl::StatusOr<std::unique_ptr<DeviceMemoryPool>> DeviceMemoryPool::Create(
    size_t bytes) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  absl::Status status =
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  if (!status.ok()) return status;
  bytes = std::min(bytes, free_bytes / 5 * 4);
  bytes = bytes / RangeAllocator::kAlignment * RangeAllocator::kAlignment;
  absl::StatusOr<DeviceMemory> memory = MakeDeviceMemory(bytes);
  if (!memory.ok()) return memory.status();
  return absl::WrapUnique(new DeviceMemoryPool(*std::move(memory), bytes));
}

DeviceMemoryPool::DeviceMemoryPool(DeviceMemory memory, size_t bytes)
    : memory_(std::move(memory)), capacity_(bytes), ranges_(bytes) {}

std::optional<DeviceBlock> DeviceMemoryPool::Allocate(size_t bytes) {
  if (bytes == 0) return DeviceBlock();
  MutexLock lock(&mu_);
  const std::optional<size_t> offset = ranges_.Allocate(bytes);
  if (!offset) return std::nullopt;
  return DeviceBlock(this, memory_.get() + *offset, bytes);
}

void DeviceMemoryPool::Release(std::byte* data, size_t size) {
  MutexLock lock(&mu_);
  ranges_.Free(data - memory_.get(), size);
}

size_t DeviceMemoryPool::used() const {
  MutexLock lock(&mu_);
  return ranges_.used();
}

}  // namespace gemmd
