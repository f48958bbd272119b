#include "server/store/resident_matrix.h"

#include <algorithm>
#include <utility>

namespace gemmd {

ResidentMatrix::ResidentMatrix(int64_t rows, int64_t cols,
                               std::unique_ptr<ResidentMemory> memory)
    : rows_(rows), cols_(cols), home_(memory->device()) {
  copies_.push_back(std::move(memory));
}

size_t ResidentMatrix::bytes() const {
  return static_cast<size_t>(rows_) * static_cast<size_t>(cols_) *
         sizeof(float);
}

const ResidentMemory* ResidentMatrix::memory(int device) const {
  MutexLock lock(&mu_);
  for (const auto& copy : copies_) {
    if (copy->device() == device) return copy.get();
  }
  return nullptr;
}

std::byte* ResidentMatrix::data(int device) const {
  const ResidentMemory* const copy = memory(device);
  return copy == nullptr ? nullptr : copy->data();
}

void ResidentMatrix::AddCopy(std::unique_ptr<ResidentMemory> memory) {
  MutexLock lock(&mu_);
  copies_.push_back(std::move(memory));
}

std::vector<int> ResidentMatrix::devices() const {
  std::vector<int> devices;
  {
    MutexLock lock(&mu_);
    for (const auto& copy : copies_) devices.push_back(copy->device());
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

size_t ResidentMatrix::device_bytes() const {
  MutexLock lock(&mu_);
  size_t bytes = 0;
  for (const auto& copy : copies_) bytes += copy->size();
  return bytes;
}

}  // namespace gemmd
