// The CPU backend behind two gates, so that a test decides when products run
// and when copies to and from resident matrices do.

#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "server/execute/backend.h"
#include "server/mutex.h"

namespace gemmd {

class GatedDevice final : public Device {
 public:
  explicit GatedDevice(Device* inner) : inner_(inner) {}

  const DeviceInfo& info() const override { return inner_->info(); }
  absl::Status Warm() override { return inner_->Warm(); }

  void Execute(Batch batch, BatchDone done) override {
    {
      MutexLock lock(&mu_);
      if (!open_) {
        waiting_.emplace_back(std::move(batch), std::move(done));
        return;
      }
    }
    inner_->Execute(std::move(batch), std::move(done));
  }

  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override {
    return inner_->AllocateResident(bytes);
  }
  size_t resident_capacity() const override {
    return inner_->resident_capacity();
  }
  void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
              CopyDone done) override {
    Copy([this, &to, offset, from = std::move(from),
          done = std::move(done)]() mutable {
      inner_->CopyIn(to, offset, std::move(from), std::move(done));
    });
  }
  void CopyOut(const ResidentMemory& from, size_t offset, StagingBuffer to,
               CopyDone done) override {
    Copy([this, &from, offset, to = std::move(to),
          done = std::move(done)]() mutable {
      inner_->CopyOut(from, offset, std::move(to), std::move(done));
    });
  }
  void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                size_t offset, size_t bytes,
                absl::AnyInvocable<void(absl::Status) &&> done) override {
    inner_->CopyFrom(from, to, offset, bytes, std::move(done));
  }

  void CloseCopies() {
    MutexLock lock(&mu_);
    copies_open_ = false;
  }

  void OpenCopies() {
    std::vector<absl::AnyInvocable<void()>> waiting;
    {
      MutexLock lock(&mu_);
      copies_open_ = true;
      waiting.swap(copies_);
    }
    for (auto& copy : waiting) copy();
  }

  // Copies that wait at their gate.
  int waiting_copies() const {
    MutexLock lock(&mu_);
    return static_cast<int>(copies_.size());
  }

  void Close() {
    MutexLock lock(&mu_);
    open_ = false;
  }

  void Open() {
    std::vector<std::pair<Batch, BatchDone>> waiting;
    {
      MutexLock lock(&mu_);
      open_ = true;
      waiting.swap(waiting_);
    }
    for (auto& [batch, done] : waiting) {
      inner_->Execute(std::move(batch), std::move(done));
    }
  }

  // The first task at the gate, which must be closed and have one.
  std::shared_ptr<const Task> first() const {
    MutexLock lock(&mu_);
    return waiting_.at(0).first.tasks.at(0);
  }

  // Loses the tasks of the batches that wait, as a bug of a device would.
  void Drop() {
    std::vector<std::pair<Batch, BatchDone>> waiting;
    {
      MutexLock lock(&mu_);
      waiting.swap(waiting_);
    }
    for (auto& [batch, done] : waiting) {
      batch.tasks.clear();
      std::move(done)({});
    }
  }

  // Batches that wait at the gate.
  int waiting() const {
    MutexLock lock(&mu_);
    return static_cast<int>(waiting_.size());
  }

 private:
  void Copy(absl::AnyInvocable<void()> copy) {
    {
      MutexLock lock(&mu_);
      if (!copies_open_) {
        copies_.push_back(std::move(copy));
        return;
      }
    }
    copy();
  }

  Device* const inner_;
  mutable Mutex mu_;
  bool open_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<std::pair<Batch, BatchDone>> waiting_ ABSL_GUARDED_BY(mu_);
  bool copies_open_ ABSL_GUARDED_BY(mu_) = true;
  std::vector<absl::AnyInvocable<void()>> copies_ ABSL_GUARDED_BY(mu_);
};

class GatedBackend final : public Backend {
 public:
  explicit GatedBackend(std::unique_ptr<Backend> inner)
      : inner_(std::move(inner)) {
    devices_.push_back(
        std::make_unique<GatedDevice>(inner_->devices()[0].get()));
  }

  absl::string_view name() const override { return inner_->name(); }
  MemorySpace kernel_space() const override { return inner_->kernel_space(); }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return inner_->staging(); }

  GatedDevice& gate() { return static_cast<GatedDevice&>(*devices_[0]); }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace gemmd
