// Devices that keep resident matrices on the heap and copy when a test says so.

#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/execute/backend.h"
#include "server/execute/range_allocator.h"
#include "server/mutex.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {

// What memory holds that nobody has written: another client's, say.
inline constexpr int kStale = 0x5c;

class FakeStoreDevice : public Device {
 public:
  FakeStoreDevice(int index, size_t capacity)
      : capacity_(capacity), memory_(capacity + 256), ranges_(capacity) {
    info_.index = index;
    std::memset(memory_.data(), kStale, memory_.size());
  }

  const DeviceInfo& info() const override { return info_; }
  absl::Status Warm() override { return absl::OkStatus(); }
  void Execute(Batch, BatchDone) override {}

  size_t resident_capacity() const override { return capacity_; }
  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override {
    MutexLock lock(&mu_);
    const std::optional<size_t> offset = ranges_.Allocate(bytes);
    if (!offset) return absl::ResourceExhaustedError("full");
    return std::make_unique<Memory>(*this, *offset, bytes);
  }

  void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
              CopyDone done) override {
    Post([to = to.data() + offset, from = std::move(from),
          done = std::move(done)](const absl::Status& status) mutable {
      if (status.ok()) std::memcpy(to, from.data(), from.size());
      std::move(done)(status, std::move(from));
    });
  }
  void CopyOut(const ResidentMemory& from, size_t offset, StagingBuffer to,
               CopyDone done) override {
    Post([from = from.data() + offset, to = std::move(to),
          done = std::move(done)](const absl::Status& status) mutable {
      if (status.ok()) std::memcpy(to.data(), from, to.size());
      std::move(done)(status, std::move(to));
    });
  }
  void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                size_t offset, size_t size,
                absl::AnyInvocable<void(absl::Status) &&> done) override {
    Post([from = from.data(), to = to.data() + offset, size,
          done = std::move(done)](const absl::Status& status) mutable {
      if (status.ok()) std::memcpy(to, from, size);
      std::move(done)(status);
    });
  }

  // Copies wait from now on, until RunCopies.
  void Hold() {
    MutexLock lock(&mu_);
    hold_ = true;
  }
  // Runs those that wait, in order; with an error they all fail.
  void RunCopies(const absl::Status& status = absl::OkStatus()) {
    std::deque<Copy> copies;
    {
      MutexLock lock(&mu_);
      hold_ = false;
      copies.swap(copies_);
    }
    for (Copy& copy : copies) copy(status);
  }
  size_t copies() const {
    MutexLock lock(&mu_);
    return copies_.size();
  }
  size_t used() const {
    MutexLock lock(&mu_);
    return ranges_.used();
  }

 private:
  using Copy = absl::AnyInvocable<void(const absl::Status&)>;

  class Memory : public ResidentMemory {
   public:
    Memory(FakeStoreDevice& device, size_t offset, size_t size)
        : device_(device), offset_(offset), size_(size) {}
    ~Memory() override {
      std::memset(data(), kStale, size_);  // a late copy would be seen
      MutexLock lock(&device_.mu_);
      device_.ranges_.Free(offset_, size_);
    }
    std::byte* data() const override {
      return device_.memory_.data() + offset_;
    }
    size_t size() const override { return size_; }
    int device() const override { return device_.info_.index; }

   private:
    FakeStoreDevice& device_;
    const size_t offset_;
    const size_t size_;
  };

  void Post(Copy copy) {
    {
      MutexLock lock(&mu_);
      if (hold_) {
        copies_.push_back(std::move(copy));
        return;
      }
    }
    copy(absl::OkStatus());
  }

  DeviceInfo info_;
  const size_t capacity_;
  std::vector<std::byte> memory_;
  mutable Mutex mu_;
  RangeAllocator ranges_ ABSL_GUARDED_BY(mu_);
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Copy> copies_ ABSL_GUARDED_BY(mu_);
};

class FakeStoreBackend : public Backend {
 public:
  explicit FakeStoreBackend(const std::vector<size_t>& capacities) {
    for (const size_t capacity : capacities) {
      devices_.push_back(std::make_unique<FakeStoreDevice>(
          static_cast<int>(devices_.size()), capacity));
    }
  }
  absl::string_view name() const override { return "fake"; }
  MemorySpace kernel_space() const override { return MemorySpace::kHost; }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  FakePool& staging() override { return staging_; }
  FakeStoreDevice& device(int index = 0) {
    return static_cast<FakeStoreDevice&>(*devices_[index]);
  }

 private:
  FakePool staging_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace gemmd
