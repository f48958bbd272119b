// A backend whose devices fail as a test tells them to: the CPU's backend with
// faults in front of it. No program knows of it.

#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "server/execute/backend.h"
#include "server/mutex.h"

namespace gemmd::testing {

// What becomes of a batch.
enum class Fault {
  kNone,
  kSlow,           // it begins FaultyDevice::kSlowness later
  kStuck,          // it begins, and ends when the test lets it (Release)
  kStuckCopies,    // likewise copies to and from resident matrices; no batch
  kOutOfMemory,    // there is no device memory for its tasks
  kLaunchFailure,  // its launch fails, which the device survives
  // A sticky error: the device is lost. Found before the batch began, at its
  // first copy, and when half of its tasks had their answers.
  kLostBeforeStart,
  kLostAtStart,
  kLostMidway,
};

// Thread-safe.
class FaultyDevice : public Device {
 public:
  explicit FaultyDevice(std::unique_ptr<Device> inner);
  // Releases what is stuck, and waits for it.
  ~FaultyDevice() override;

  // Of the batches from now on. After a sticky error it makes no difference.
  void Set(Fault fault);

  // Lets stuck batches end, and waits until they have. The device works again.
  void Release();

  // Batches under way.
  int running() const;

  // Copies that are stuck.
  int stuck_copies() const;

  static constexpr auto kSlowness = std::chrono::milliseconds(20);

  const DeviceInfo& info() const override { return inner_->info(); }
  void Execute(Batch batch, BatchDone done) override;
  absl::Status Warm() override { return inner_->Warm(); }
  absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes) override;
  size_t resident_capacity() const override;
  void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
              CopyDone done) override;
  void CopyOut(const ResidentMemory& from, size_t offset, StagingBuffer to,
               CopyDone done) override;
  void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                size_t offset, size_t bytes,
                absl::AnyInvocable<void(absl::Status) &&> done) override;

 private:
  struct Job {
    Fault fault;
    int releases;  // when it came: one later lets it go
    Batch batch;
    BatchDone done;
  };

  void Work();
  BatchReport Run(Job& job);
  void WaitForRelease(int releases);
  void Copy(absl::AnyInvocable<void() &&> copy) ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<Device> inner_;
  mutable Mutex mu_;
  CondVar changed_;
  Fault fault_ ABSL_GUARDED_BY(mu_) = Fault::kNone;
  bool lost_ ABSL_GUARDED_BY(mu_) = false;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  int releases_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<absl::AnyInvocable<void() &&>> copies_ ABSL_GUARDED_BY(mu_);
  // One a stream, and one more to be free: last, they use all of the above.
  std::vector<std::thread> threads_;
};

// `devices` CPU devices, as many streams each as the options say.
class FaultyBackend : public Backend {
 public:
  static absl::StatusOr<std::unique_ptr<FaultyBackend>> Create(
      const BackendOptions& options, const KernelRegistry& registry,
      int devices);

  absl::string_view name() const override { return "cpu"; }
  MemorySpace kernel_space() const override { return MemorySpace::kHost; }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return host_->staging(); }
  FaultyDevice& device(int i) {
    return static_cast<FaultyDevice&>(*devices_[i]);
  }

 private:
  explicit FaultyBackend(std::unique_ptr<Backend> host)
      : host_(std::move(host)) {}

  std::unique_ptr<Backend> host_;  // for its staging memory
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace gemmd::testing
