#include "server/execute/cpu/cpu_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "server/execute/task_run.h"
#include "server/execute/thread_load.h"
#include "server/execute/warm_problems.h"

namespace gemmd {
namespace {

// Small, unaligned, and large enough for every thread of the BLAS library.
constexpr std::array<int64_t, 3> kWarmSizes = {16, 65, 256};

// Computed where it is given: up to so much work and so many numbers, by a
// kernel that takes no longer for it. 64^3 takes OpenBLAS 3 us, the naive loops
// of `reference` 0.5 ms; the hand-over to a worker costs 11 to 16 us.
constexpr GemmShape kSmall = {.m = 64, .n = 64, .k = 64};
constexpr MonotonicDuration kQuick = std::chrono::microseconds(50);

double Numbers(const GemmShape& s) {
  const double m = static_cast<double>(s.m);
  const double n = static_cast<double>(s.n);
  const double k = static_cast<double>(s.k);
  return m * k + k * n + m * n;
}

// The least time of some: others may share the machine.
bool IsQuick(const SgemmKernel& kernel, const SgemmArgs& args) {
  if (!kernel.Supports(args).ok()) return false;
  MonotonicDuration least = MonotonicDuration::max();
  for (int i = 0; i < 8; ++i) {
    const MonotonicTime start = MonotonicClock::now();
    if (!kernel.Launch({&args, 1}, LaunchContext{}).ok()) return false;
    least = std::min(least, MonotonicClock::now() - start);
  }
  return least <= kQuick;
}

thread_local bool t_executing = false;  // a small batch, inside Execute

class CpuResidentMemory : public ResidentMemory {
 public:
  CpuResidentMemory(StagingBuffer buffer, int device)
      : buffer_(std::move(buffer)), device_(device) {}
  std::byte* data() const override { return buffer_.data(); }
  size_t size() const override { return buffer_.size(); }
  int device() const override { return device_; }

 private:
  const StagingBuffer buffer_;
  const int device_;
};

}  // namespace

CpuDevice::CpuDevice(DeviceInfo info, const KernelRegistry& registry,
                     std::unique_ptr<StagingPool> resident)
    : info_(std::move(info)),
      registry_(registry),
      resident_(std::move(resident)),
      workers_(info_.streams, "gemmd-cpu-"),
      copier_(1, "gemmd-copy-") {}

bool CpuDevice::IsSmall(const Batch& batch) const {
  if (batch.tasks.size() != 1 || !quick_.contains(batch.kernel)) return false;
  const GemmShape& shape = batch.tasks.front()->spec().shape;
  return shape.flops() <= kSmall.flops() && Numbers(shape) <= Numbers(kSmall);
}

void CpuDevice::Execute(Batch batch, BatchDone done) {
  // Not within another one: the end of a batch starts the next, and a queue of
  // small ones would nest as deep as it is long.
  if (!t_executing && !ThreadHasMore() && IsSmall(batch)) {
    t_executing = true;
    const BatchReport report = Run(batch);
    std::move(done)(report);
    t_executing = false;
    return;
  }
  workers_.Post(
      [this, batch = std::move(batch), done = std::move(done)]() mutable {
        const BatchReport report = Run(batch);
        std::move(done)(report);
      });
}

absl::StatusOr<std::unique_ptr<ResidentMemory>> CpuDevice::AllocateResident(
    size_t bytes) {
  absl::StatusOr<StagingBuffer> buffer = resident_->Allocate(bytes);
  if (!buffer.ok()) return NoResidentMemoryError(bytes);
  return std::make_unique<CpuResidentMemory>(*std::move(buffer), info_.index);
}

void CpuDevice::CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
                       CopyDone done) {
  copier_.Post([to = to.data() + offset, from = std::move(from),
                done = std::move(done)]() mutable {
    if (from.size() > 0) std::memcpy(to, from.data(), from.size());
    std::move(done)(absl::OkStatus(), std::move(from));
  });
}

void CpuDevice::CopyOut(const ResidentMemory& from, size_t offset,
                        StagingBuffer to, CopyDone done) {
  copier_.Post([from = from.data() + offset, to = std::move(to),
                done = std::move(done)]() mutable {
    if (to.size() > 0) std::memcpy(to.data(), from, to.size());
    std::move(done)(absl::OkStatus(), std::move(to));
  });
}

void CpuDevice::CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                         size_t offset, size_t bytes,
                         absl::AnyInvocable<void(absl::Status) &&> done) {
  copier_.Post([from = from.data(), to = to.data() + offset, bytes,
                done = std::move(done)]() mutable {
    std::memcpy(to, from, bytes);
    std::move(done)(absl::OkStatus());
  });
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
    const SgemmArgs args = HostArgs(task->spec(), info_.index);
    PlaceHostC(task->spec(), info_.index, args);
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
  workers_.Post([&] {
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
  const SgemmArgs small = {.shape = kSmall,
                           .a = input.data(),
                           .lda = kSmall.k,
                           .b = input.data(),
                           .ldb = kSmall.n,
                           .c = output.data(),
                           .ldc = kSmall.n};
  for (const KernelEntry& entry : registry_.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kHost) {
      continue;
    }
    for (const SgemmArgs& args : problems) {
      if (!entry.kernel->Supports(args).ok()) continue;
      absl::Status status = entry.kernel->Launch({&args, 1}, LaunchContext{});
      if (!status.ok()) return status;
    }
    if (IsQuick(*entry.kernel, small)) quick_.insert(entry.kernel.get());
  }
  return absl::OkStatus();
}

}  // namespace gemmd
