#include "server/execute/cpu/cpu_device.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <latch>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/execute/task_run.h"
#include "server/execute/warm_problems.h"

namespace gemmd {
namespace {

// Small, unaligned, and large enough for every thread of the BLAS library.
constexpr std::array<int64_t, 3> kWarmSizes = {16, 65, 256};

void Join(std::thread& thread) { thread.join(); }

}  // namespace

CpuDevice::CpuDevice(DeviceInfo info, const KernelRegistry& registry)
    : info_(std::move(info)), registry_(registry) {
  for (int i = 0; i < info_.streams; ++i) {
    workers_.emplace_back([this] { Work(); });
    pthread_setname_np(workers_.back().native_handle(),
                       absl::StrCat("gemmd-cpu-", i).c_str());
  }
}

CpuDevice::~CpuDevice() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    work_.SignalAll();
  }
  std::for_each(workers_.begin(), workers_.end(), Join);
}

void CpuDevice::Execute(Batch batch, BatchDone done) {
  Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
    const BatchReport report = Run(batch);
    std::move(done)(report);
  });
}

void CpuDevice::Post(Job job) {
  MutexLock lock(&mu_);
  jobs_.push_back(std::move(job));
  work_.Signal();
}

void CpuDevice::Work() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mu_);
      while (jobs_.empty() && !stopping_) work_.Wait(&mu_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

BatchReport CpuDevice::Run(const Batch& batch) {
  BatchReport report;
  report.device = info_.index;
  const int batch_size = static_cast<int>(batch.tasks.size());
  for (const std::shared_ptr<Task>& task : batch.tasks) {
    const MonotonicTime start = MonotonicClock::now();
    if (!StartInTime(*task, start, info_.index)) continue;
    ++report.tasks;
    report.flops += task->spec().shape.flops();
    const SgemmArgs args = HostArgs(task->spec());
    absl::Status status = batch.kernel->Launch({&args, 1}, LaunchContext{});
    StageSeconds seconds = SecondsUntil(task->spec(), start);
    seconds.compute = Seconds(MonotonicClock::now() - start);
    report.seconds.compute += seconds.compute;
    report.seconds.queue = std::max(report.seconds.queue, seconds.queue);
    if (!status.ok()) {
      report.launch_status.Update(status);
      status = KernelFaultError(*batch.kernel);
    }
    task->Finish(std::move(status), seconds, info_.index, batch_size);
  }
  return report;
}

absl::Status CpuDevice::Warm() {
  // On a worker, whose stack and caches are the ones to warm.
  absl::Status status;
  std::latch warm(1);
  Post([&] {
    status = LaunchAll();
    warm.count_down();
  });
  warm.wait();
  return status;
}

absl::Status CpuDevice::LaunchAll() {
  const int64_t largest = kWarmSizes.back();
  std::vector<float> input(largest * largest, 0.5f);
  std::vector<float> output(largest * largest);
  std::vector<SgemmArgs> problems = WarmProblems(kWarmSizes);
  for (SgemmArgs& args : problems) {
    args.a = args.b = input.data();
    args.c = output.data();
  }
  for (const KernelEntry& entry : registry_.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kHost) {
      continue;
    }
    for (const SgemmArgs& args : problems) {
      if (!entry.kernel->Supports(args).ok()) continue;
      absl::Status status = entry.kernel->Launch({&args, 1}, LaunchContext{});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd
