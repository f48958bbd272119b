#include "server/execute/cuda/cuda_device.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <latch>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "server/execute/warm_problems.h"

namespace gemmd {
namespace {

using std::chrono::microseconds;

// A client that asks again at once does so within this.
constexpr MonotonicDuration kSpinWhenIdle = microseconds(200);
// A product that has run so long may be looked at less often.
constexpr MonotonicDuration kSpinOnBatch = microseconds(2000);
constexpr MonotonicDuration kNap = microseconds(50);

// Small, unaligned, and of the sizes between which cuBLAS changes its kernels.
constexpr std::array<int64_t, 5> kWarmSizes = {16, 65, 256, 1024, 2048};
constexpr std::array<int64_t, 1> kWarmSizesOfOthers = {256};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    DeviceInfo info, int ordinal, size_t memory_bytes,
    const KernelRegistry& registry, StagingPool& staging) {
  if (absl::Status status = UseDevice(ordinal); !status.ok()) return status;
  auto device = absl::WrapUnique(
      new CudaDevice(std::move(info), ordinal, registry, staging));
  for (int i = 0; i < device->info_.streams; ++i) {
    absl::StatusOr<Lease> lease = MakeLease();
    if (!lease.ok()) return lease.status();
    device->leases_.push_back(*std::move(lease));
  }
  for (Lease& lease : device->leases_) device->free_leases_.push_back(&lease);
  absl::StatusOr<std::unique_ptr<DeviceMemoryPool>> memory =
      DeviceMemoryPool::Create(memory_bytes);
  if (!memory.ok()) return memory.status();
  device->memory_ = *std::move(memory);
  device->thread_ = std::thread([raw = device.get()] { raw->Drive(); });
  pthread_setname_np(device->thread_.native_handle(),
                     absl::StrCat("gemmd-cuda-", ordinal).c_str());
  return device;
}

CudaDevice::CudaDevice(DeviceInfo info, int ordinal,
                       const KernelRegistry& registry, StagingPool& staging)
    : info_(std::move(info)),
      ordinal_(ordinal),
      registry_(registry),
      staging_(staging) {}

CudaDevice::~CudaDevice() {
  if (thread_.joinable()) {
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      attention_.store(true, std::memory_order_release);
      wake_.Signal();
    }
    thread_.join();
  }
  UseDevice(ordinal_).IgnoreError();  // nobody could be told
  leases_.clear();
  memory_.reset();
}

void CudaDevice::Execute(Batch batch, BatchDone done) {
  Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
    waiting_.push_back(std::make_unique<CudaBatch>(
        std::move(batch), std::move(done), info_.index));
  });
}

void CudaDevice::Post(Job job) {
  MutexLock lock(&mu_);
  posted_.push_back(std::move(job));
  attention_.store(true, std::memory_order_release);
  wake_.Signal();
}

void CudaDevice::Drive() {
  cudaSetDevice(ordinal_);
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: a nap of 50 us is not to take 100
  while (true) {
    bool progress = RunPosted();
    progress |= FinishDone();
    progress |= EnqueueWaiting();
    if (progress) {
      last_progress_ = MonotonicClock::now();
    } else if (!Rest()) {
      return;
    }
  }
}

bool CudaDevice::RunPosted() {
  if (!attention_.load(std::memory_order_acquire)) return false;
  std::deque<Job> posted;
  {
    MutexLock lock(&mu_);
    posted.swap(posted_);
    attention_.store(stopping_, std::memory_order_release);
  }
  for (Job& job : posted) job();
  return !posted.empty();
}

bool CudaDevice::EnqueueWaiting() {
  bool progress = false;
  while (!waiting_.empty()) {
    CudaBatch& batch = *waiting_.front();
    if (!fault_.ok()) {
      batch.Fail(fault_);
      batch.Report();
    } else {
      if (free_leases_.empty() ||
          batch.Reserve(*memory_, /*alone=*/running_.empty()) ==
              CudaBatch::Reserved::kWait) {
        break;
      }
      batch.Enqueue(free_leases_.back());
      free_leases_.pop_back();
      running_.push_back(std::move(waiting_.front()));
    }
    waiting_.pop_front();
    progress = true;
  }
  return progress;
}

bool CudaDevice::FinishDone() {
  bool progress = false;
  for (size_t i = 0; i < running_.size();) {
    if (!running_[i]->Poll()) {
      ++i;
      continue;
    }
    std::unique_ptr<CudaBatch> batch = std::move(running_[i]);
    running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
    End(std::move(batch));
    progress = true;
  }
  return progress;
}

void CudaDevice::End(std::unique_ptr<CudaBatch> batch) {
  if (!batch->device_status().ok()) fault_.Update(batch->device_status());
  batch->Finish();
  free_leases_.push_back(batch->lease());
  batch->Report();
}

bool CudaDevice::Rest() {
  const MonotonicTime now = MonotonicClock::now();
  const MonotonicDuration quiet = now - last_progress_;
  if (quiet < (running_.empty() ? kSpinWhenIdle : kSpinOnBatch)) {
    CpuRelax();
    return true;
  }
  MutexLock lock(&mu_);
  if (!posted_.empty()) return true;
  if (!running_.empty()) {
    wake_.WaitUntil(&mu_, now + kNap);
    return true;
  }
  if (stopping_) return false;
  wake_.Wait(&mu_);
  return true;
}

absl::Status CudaDevice::Warm() {
  absl::Status status;
  std::latch warm(1);
  Post([&] {
    for (size_t i = 0; i < leases_.size() && status.ok(); ++i) {
      status = WarmLease(leases_[i], /*all_sizes=*/i == 0);
    }
    warm.count_down();
  });
  warm.wait();
  return status;
}

absl::Status CudaDevice::WarmLease(Lease& lease, bool all_sizes) {
  absl::Status status = all_sizes ? WarmKernels(lease, kWarmSizes)
                                  : WarmKernels(lease, kWarmSizesOfOthers);
  if (status.ok()) status = WarmCopies(lease);
  if (!status.ok()) return status;
  return CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                    "cudaStreamSynchronize, to warm up");
}

absl::Status CudaDevice::WarmKernels(Lease& lease,
                                     std::span<const int64_t> sizes) {
  // A and B are one matrix; each of two problems of a launch has its own C.
  const auto matrix_bytes = [&] {
    return sizes.back() * sizes.back() * sizeof(float);
  };
  while (3 * matrix_bytes() > memory_->capacity() && sizes.size() > 1) {
    sizes = sizes.first(sizes.size() - 1);
  }
  const size_t matrix = matrix_bytes();
  std::optional<DeviceBlock> block = memory_->Allocate(3 * matrix);
  if (!block) return absl::ResourceExhaustedError("no memory to warm up in");
  absl::Status status = CudaStatus(
      cudaMemsetAsync(block->data(), 0, block->size(), lease.stream.get()),
      "cudaMemsetAsync");
  if (!status.ok()) return status;
  LaunchContext context;
  context.stream = lease.stream.get();
  context.cublas = lease.cublas.get();
  for (const KernelEntry& entry : registry_.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kDevice) {
      continue;
    }
    for (SgemmArgs args : WarmProblems(sizes)) {
      args.a = args.b = reinterpret_cast<const float*>(block->data());
      args.c = reinterpret_cast<float*>(block->data() + matrix);
      std::array<SgemmArgs, 2> pair = {args, args};
      pair[1].c = reinterpret_cast<float*>(block->data() + 2 * matrix);
      if (!entry.kernel->Supports(args).ok()) continue;
      for (const size_t count : {1, 2}) {
        const std::span<const SgemmArgs> problems(pair.data(), count);
        const size_t needed = entry.kernel->WorkspaceBytes(problems);
        std::optional<DeviceBlock> workspace = memory_->Allocate(needed);
        if (!workspace) continue;
        context.workspace = workspace->data();
        context.workspace_bytes = workspace->size();
        if (status = entry.kernel->Launch(problems, context); !status.ok()) {
          return status;
        }
        if (needed > 0) cudaStreamSynchronize(lease.stream.get());
      }
    }
  }
  return CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                    "cudaStreamSynchronize, to warm up");
}

absl::Status CudaDevice::WarmCopies(Lease& lease) {
  constexpr size_t kBytes = 4096;
  absl::StatusOr<StagingBuffer> host = staging_.Allocate(kBytes);
  if (!host.ok()) return host.status();
  std::memset(host->data(), 0, kBytes);
  std::optional<DeviceBlock> block = memory_->Allocate(kBytes);
  if (!block) return absl::ResourceExhaustedError("no memory to warm up in");
  const CopySegment in = {block->data(), host->data(), kBytes};
  const CopySegment out = {host->data(), block->data(), kBytes};
  for (const CudaEvent* const event :
       {&lease.started, &lease.copied_in, &lease.computed, &lease.copied_out}) {
    absl::Status status = CopySegmentsByEngine({&in, 1}, cudaMemcpyHostToDevice,
                                               lease.stream.get());
    status.Update(CopySegmentsByEngine({&out, 1}, cudaMemcpyDeviceToHost,
                                       lease.stream.get()));
    status.Update(CopySegmentsByKernel({&in, 1}, lease.stream.get()));
    status.Update(CopySegmentsByKernel({&out, 1}, lease.stream.get()));
    status.Update(CudaStatus(cudaEventRecord(event->get(), lease.stream.get()),
                             "cudaEventRecord"));
    status.Update(CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                             "cudaStreamSynchronize, to warm up"));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace gemmd
