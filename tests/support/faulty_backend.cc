#include "tests/support/faulty_backend.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "proto/error_details.h"
#include "server/execute/cpu/cpu_backend.h"
#include "server/execute/cpu/cpu_device.h"
#include "server/execute/cpu/heap_staging_pool.h"
#include "server/execute/task_run.h"

namespace gemmd::testing {
namespace {

constexpr size_t kResidentBytes = size_t{64} << 20;

}  // namespace

FaultyDevice::FaultyDevice(std::unique_ptr<Device> inner)
    : inner_(std::move(inner)) {
  for (int i = 0; i < inner_->info().streams; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

FaultyDevice::~FaultyDevice() {
  Release();
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void FaultyDevice::Set(Fault fault) {
  MutexLock lock(&mu_);
  fault_ = fault;
}

void FaultyDevice::Release() {
  decltype(copies_) copies;
  {
    MutexLock lock(&mu_);
    if (fault_ == Fault::kStuck || fault_ == Fault::kStuckCopies) {
      fault_ = Fault::kNone;
    }
    copies.swap(copies_);
  }
  for (auto& copy : copies) std::move(copy)();
  MutexLock lock(&mu_);
  ++releases_;
  changed_.SignalAll();
  while (running_ > 0) changed_.Wait(&mu_);
}

int FaultyDevice::stuck_copies() const {
  MutexLock lock(&mu_);
  return static_cast<int>(copies_.size());
}

void FaultyDevice::Copy(absl::AnyInvocable<void() &&> copy) {
  {
    MutexLock lock(&mu_);
    if (fault_ == Fault::kStuckCopies) {
      copies_.push_back(std::move(copy));
      return;
    }
  }
  std::move(copy)();
}

int FaultyDevice::running() const {
  MutexLock lock(&mu_);
  return running_;
}

void FaultyDevice::Execute(Batch batch, BatchDone done) {
  {
    MutexLock lock(&mu_);
    const Fault fault = lost_ ? Fault::kLostBeforeStart : fault_;
    if (fault != Fault::kNone && fault != Fault::kStuckCopies) {
      lost_ = lost_ || fault >= Fault::kLostBeforeStart;
      ++running_;
      jobs_.push_back({fault, releases_, std::move(batch), std::move(done)});
      changed_.SignalAll();
      return;
    }
  }
  inner_->Execute(std::move(batch), std::move(done));
}

void FaultyDevice::Work() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mu_);
      while (jobs_.empty() && !stopping_) changed_.Wait(&mu_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    if (job.fault == Fault::kSlow) {
      std::this_thread::sleep_for(kSlowness);
      inner_->Execute(std::move(job.batch), std::move(job.done));
    } else {
      const BatchReport report = Run(job);
      job.batch.tasks.clear();
      std::move(job.done)(report);
    }
    MutexLock lock(&mu_);
    --running_;
    changed_.SignalAll();
  }
}

BatchReport FaultyDevice::Run(Job& job) {
  const Fault fault = job.fault;
  const Batch& batch = job.batch;
  BatchReport report;
  report.device = info().index;
  if (fault >= Fault::kLostBeforeStart) {
    report.status = absl::InternalError("sticky error 700 of the driver");
  }
  std::vector<Task*> started;
  for (const auto& task : batch.tasks) {
    if (fault == Fault::kLostBeforeStart) {
      task->Abort(DeviceLostError());
    } else if (fault == Fault::kOutOfMemory) {
      task->Abort(QuotaError("device-memory", "the device's memory is taken",
                             absl::Milliseconds(100)));
    } else if (StartInTime(*task, MonotonicClock::now(), info().index)) {
      started.push_back(task.get());
    }
  }
  if (fault == Fault::kStuck) WaitForRelease(job.releases);
  if (fault == Fault::kLaunchFailure) {
    report.launch_status = absl::InternalError("error 1 of a launch");
  }
  report.tasks = static_cast<int>(started.size());
  const size_t computed = fault == Fault::kStuck        ? started.size()
                          : fault == Fault::kLostMidway ? started.size() / 2
                                                        : 0;
  for (size_t i = 0; i < started.size(); ++i) {
    Task& task = *started[i];
    absl::Status status;
    if (i < computed) {
      const SgemmArgs args = HostArgs(task.spec(), info().index);
      status = batch.kernel->Launch({&args, 1}, LaunchContext{});
    } else if (fault == Fault::kLaunchFailure) {
      status = KernelFaultError(*batch.kernel);
    } else {
      status = DeviceFaultError(info().index);
    }
    task.Finish(std::move(status), {}, info().index, report.tasks);
  }
  return report;
}

void FaultyDevice::WaitForRelease(int releases) {
  MutexLock lock(&mu_);
  while (releases_ == releases) changed_.Wait(&mu_);
}

absl::StatusOr<std::unique_ptr<ResidentMemory>> FaultyDevice::AllocateResident(
    size_t bytes) {
  return inner_->AllocateResident(bytes);
}

size_t FaultyDevice::resident_capacity() const {
  return inner_->resident_capacity();
}

void FaultyDevice::CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
                          CopyDone done) {
  Copy([this, &to, offset, from = std::move(from),
        done = std::move(done)]() mutable {
    inner_->CopyIn(to, offset, std::move(from), std::move(done));
  });
}

void FaultyDevice::CopyOut(const ResidentMemory& from, size_t offset,
                           StagingBuffer to, CopyDone done) {
  Copy([this, &from, offset, to = std::move(to),
        done = std::move(done)]() mutable {
    inner_->CopyOut(from, offset, std::move(to), std::move(done));
  });
}

void FaultyDevice::CopyFrom(const ResidentMemory& from,
                            const ResidentMemory& to, size_t offset,
                            size_t bytes,
                            absl::AnyInvocable<void(absl::Status) &&> done) {
  Copy([this, &from, &to, offset, bytes, done = std::move(done)]() mutable {
    inner_->CopyFrom(from, to, offset, bytes, std::move(done));
  });
}

absl::StatusOr<std::unique_ptr<FaultyBackend>> FaultyBackend::Create(
    const BackendOptions& options, const KernelRegistry& registry,
    int devices) {
  auto host = CreateCpuBackend(options, registry);
  if (!host.ok()) return host.status();
  auto backend =
      std::unique_ptr<FaultyBackend>(new FaultyBackend(*std::move(host)));
  const size_t resident_bytes = options.resident_bytes.value_or(0);
  for (int i = 0; i < devices; ++i) {
    DeviceInfo info = backend->host_->devices()[0]->info();
    info.index = i;
    auto resident = HeapStagingPool::Create(
        resident_bytes > 0 ? resident_bytes : kResidentBytes);
    if (!resident.ok()) return resident.status();
    backend->devices_.push_back(
        std::make_unique<FaultyDevice>(std::make_unique<CpuDevice>(
            std::move(info), registry, *std::move(resident))));
  }
  return backend;
}

}  // namespace gemmd::testing
