// The host's processor as a device.

#pragma once

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/mutex.h"

namespace gemmd {

// One worker thread a stream. A worker runs its batch's tasks one by one, each
// started in its turn and ended as soon as it is computed, straight from and
// into staging memory: there is nothing to copy, and one launch for many would
// save nothing.
class CpuDevice : public Device {
 public:
  // `registry` outlives the device. `info.streams` workers are started.
  CpuDevice(DeviceInfo info, const KernelRegistry& registry);
  ~CpuDevice() override;

  const DeviceInfo& info() const override { return info_; }
  void Execute(Batch batch, BatchDone done) override;
  absl::Status Warm() override;

 private:
  using Job = absl::AnyInvocable<void()>;

  void Post(Job job);
  void Work();
  BatchReport Run(const Batch& batch);
  absl::Status LaunchAll();

  const DeviceInfo info_;
  const KernelRegistry& registry_;

  Mutex mu_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  CondVar work_;

  std::vector<std::thread> workers_;  // last: they use all of the above
};

}  // namespace gemmd
