// Stand-ins for what surrounds the scheduler: memory, a kernel, a device.

#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sgemm.h"
#include "server/execute/backend.h"
#include "server/execute/resident_memory.h"
#include "server/execute/staging.h"
#include "server/schedule/batch_queue.h"
#include "server/schedule/task.h"

namespace gemmd {

// Memory from the heap, as much as is asked for, and a count of what is out.
class FakePool : public StagingPool {
 public:
  ~FakePool() override = default;
  absl::StatusOr<StagingBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return StagingBuffer();
    used_ += bytes;
    return StagingBuffer(this, new std::byte[bytes], bytes);
  }
  size_t used_bytes() const override { return used_; }
  size_t capacity_bytes() const override { return size_t{1} << 40; }

 private:
  void Release(std::byte* data, size_t size) override {
    delete[] data;
    used_ -= size;
  }
  std::atomic<size_t> used_{0};
};

// A kernel that is only a name.
class FakeKernel : public SgemmKernel {
 public:
  explicit FakeKernel(std::string name, Fusion fusion = Fusion::kNone)
      : SgemmKernel({.name = std::move(name),
                     .description = "does nothing",
                     .batch_invariant = true,
                     .fusion = fusion}) {}
  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }
  absl::Status Launch(std::span<const SgemmArgs>,
                      const LaunchContext&) const override {
    return absl::OkStatus();
  }
};

// The host's memory as a device's.
class HostMemory : public ResidentMemory {
 public:
  explicit HostMemory(size_t bytes, int device = 0)
      : bytes_(bytes), device_(device) {}
  std::byte* data() const override { return bytes_.data(); }
  size_t size() const override { return bytes_.size(); }
  int device() const override { return device_; }

 private:
  mutable std::vector<std::byte> bytes_;
  const int device_;
};

// How a task ended; filled by the `done` that For makes.
struct Ending {
  std::atomic<int> times{0};
  TaskResult result;

  Task::Done For() {
    return [this](TaskResult r) {
      result = std::move(r);
      times.fetch_add(1, std::memory_order_release);
    };
  }
  bool ended() const { return times.load(std::memory_order_acquire) > 0; }
};

// A device that keeps what it is given until it is told what becomes of it.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(int index = 0, int streams = 1) {
    info_.index = index;
    info_.name = "fake";
    info_.streams = streams;
  }

  const DeviceInfo& info() const override { return info_; }
  absl::Status Warm() override { return absl::OkStatus(); }

  void Execute(Batch batch, BatchDone done) override {
    if (on_execute) on_execute(batch);
    std::lock_guard<std::mutex> lock(mu_);
    held_.push_back({std::move(batch), std::move(done)});
    ++executed_;
  }

  // Ends the oldest batch held, as a device does; false if there is none.
  bool CompleteOne(absl::Status device_status = absl::OkStatus()) {
    Held held;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (held_.empty()) return false;
      held = std::move(held_.front());
      held_.erase(held_.begin());
    }
    BatchReport report;
    report.device = info_.index;
    report.status = device_status;
    const int size = static_cast<int>(held.batch.tasks.size());
    for (const auto& task : held.batch.tasks) {
      if (!task->Start()) continue;
      ++report.tasks;
      task->Finish(device_status.ok()
                       ? absl::OkStatus()
                       : absl::InternalError("the device failed"),
                   StageSeconds{}, info_.index, size);
    }
    std::move(held.done)(report);
    return true;
  }

  int held() const {
    std::lock_guard<std::mutex> lock(mu_);
    return static_cast<int>(held_.size());
  }
  int executed() const {
    std::lock_guard<std::mutex> lock(mu_);
    return executed_;
  }
  // Sizes of the batches held, oldest first.
  std::vector<size_t> held_sizes() const {
    std::lock_guard<std::mutex> lock(mu_);
    std::vector<size_t> sizes;
    for (const Held& held : held_) sizes.push_back(held.batch.tasks.size());
    return sizes;
  }

  // Called inside Execute, with no lock of the device held.
  std::function<void(const Batch&)> on_execute;

 private:
  struct Held {
    Batch batch;
    BatchDone done;
  };

  DeviceInfo info_;
  mutable std::mutex mu_;
  std::vector<Held> held_;
  int executed_ = 0;
};

}  // namespace gemmd
