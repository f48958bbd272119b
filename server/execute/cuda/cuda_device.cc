#include "server/execute/cuda/cuda_device.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <latch>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "server/execute/cuda/warm_lease.h"
#include "server/execute/task_run.h"

namespace gemmd {
namespace {

using std::chrono::microseconds;

// A client that asks again at once does so within this, or, as its own threads
// slept through a longer product, within a third of that product's time.
constexpr MonotonicDuration kSpinWhenIdle = microseconds(200);
constexpr MonotonicDuration kMaxSpinWhenIdle = microseconds(1000);
// A product that has run so long may be looked at less often: a nap of 50 us
// takes up to 150, the wake-up of a virtual machine's core included.
constexpr MonotonicDuration kSpinOnBatch = microseconds(20'000);
constexpr MonotonicDuration kNap = microseconds(50);

class CudaResidentMemory : public ResidentMemory {
 public:
  CudaResidentMemory(DeviceBlock block, int device)
      : block_(std::move(block)), device_(device) {}
  std::byte* data() const override { return block_.data(); }
  size_t size() const override { return block_.size(); }
  int device() const override { return device_; }

 private:
  const DeviceBlock block_;
  const int device_;
};

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(
    DeviceInfo info, int ordinal, const Memory& memory,
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
  absl::Status status = device->TakeMemory(memory);
  if (status.ok()) status = device->MakeQueues();
  if (!status.ok()) return status;
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

absl::Status CudaDevice::TakeMemory(const Memory& memory) {
  auto requests = DeviceMemoryPool::Create(memory.request_bytes);
  if (!requests.ok()) return requests.status();
  memory_ = *std::move(requests);
  size_t bytes = memory.resident_bytes.value_or(0);
  if (!memory.resident_bytes) {
    size_t total = 0;
    absl::Status status =
        CudaStatus(cudaMemGetInfo(&bytes, &total), "cudaMemGetInfo");
    if (!status.ok()) return status;
    bytes /= 2;
  }
  if (bytes == 0) return absl::OkStatus();
  auto resident = DeviceMemoryPool::Create(bytes);
  if (!resident.ok()) return resident.status();
  resident_ = *std::move(resident);
  return absl::OkStatus();
}

absl::Status CudaDevice::MakeQueues() {
  for (CopyQueue* const queue :
       {&copies_in_, &copies_out_, &copies_from_others_}) {
    absl::StatusOr<CopyQueue> made = CopyQueue::Create();
    if (!made.ok()) return made.status();
    *queue = *std::move(made);
  }
  return absl::OkStatus();
}

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
  for (CopyQueue* const queue :
       {&copies_in_, &copies_out_, &copies_from_others_}) {
    *queue = CopyQueue();
  }
  resident_.reset();
  memory_.reset();
}

void CudaDevice::Execute(Batch batch, BatchDone done) {
  Post([this, batch = std::move(batch), done = std::move(done)]() mutable {
    waiting_.push_back(std::make_unique<CudaBatch>(
        std::move(batch), std::move(done), info_.index));
  });
}

absl::StatusOr<std::unique_ptr<ResidentMemory>> CudaDevice::AllocateResident(
    size_t bytes) {
  std::optional<DeviceBlock> block;
  if (resident_ != nullptr) block = resident_->Allocate(bytes);
  if (!block) return NoResidentMemoryError(bytes);
  return std::make_unique<CudaResidentMemory>(*std::move(block), info_.index);
}

size_t CudaDevice::resident_capacity() const {
  return resident_ == nullptr ? 0 : resident_->capacity();
}

void CudaDevice::CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
                        CopyDone done) {
  Post([this, to = to.data() + offset, from = std::move(from),
        done = std::move(done)]() mutable {
    CopyQueue::Copy copy = {to, from.data(), from.size(), nullptr};
    copy.done = [from = std::move(from),
                 done = std::move(done)](const absl::Status& status) mutable {
      std::move(done)(status, std::move(from));
    };
    AddCopy(copies_in_, std::move(copy));
  });
}

void CudaDevice::CopyOut(const ResidentMemory& from, size_t offset,
                         StagingBuffer to, CopyDone done) {
  Post([this, from = from.data() + offset, to = std::move(to),
        done = std::move(done)]() mutable {
    CopyQueue::Copy copy = {to.data(), from, to.size(), nullptr};
    copy.done = [to = std::move(to),
                 done = std::move(done)](const absl::Status& status) mutable {
      std::move(done)(status, std::move(to));
    };
    AddCopy(copies_out_, std::move(copy));
  });
}

void CudaDevice::CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                          size_t offset, size_t bytes,
                          absl::AnyInvocable<void(absl::Status) &&> done) {
  Post([this, from = from.data(), to = to.data() + offset, bytes,
        done = std::move(done)]() mutable {
    AddCopy(copies_from_others_,
            {to, from, bytes,
             [done = std::move(done)](const absl::Status& status) mutable {
               std::move(done)(status);
             }});
  });
}

void CudaDevice::AddCopy(CopyQueue& queue, CopyQueue::Copy copy) {
  if (!fault_.ok()) {
    std::move(copy.done)(fault_);
    return;
  }
  queue.Add(std::move(copy));
}

bool CudaDevice::AdvanceCopies() {
  bool progress = false;
  for (CopyQueue* const queue :
       {&copies_in_, &copies_out_, &copies_from_others_}) {
    if (queue->empty()) continue;
    absl::StatusOr<bool> advanced =
        fault_.ok() ? queue->Advance() : absl::StatusOr<bool>(fault_);
    if (!advanced.ok()) {
      fault_.Update(advanced.status());
      queue->Fail(fault_);
      advanced = true;
    }
    progress |= *advanced;
  }
  return progress;
}

bool CudaDevice::busy() const {
  return !running_.empty() || !copies_in_.empty() || !copies_out_.empty() ||
         !copies_from_others_.empty();
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
    const bool was_busy = busy();
    bool progress = RunPosted();
    progress |= FinishDone();
    progress |= EnqueueWaiting();
    progress |= AdvanceCopies();
    if (progress) {
      last_progress_ = MonotonicClock::now();
      if (!was_busy) busy_since_ = last_progress_;
      spin_when_idle_ = std::clamp((last_progress_ - busy_since_) / 3,
                                   kSpinWhenIdle, kMaxSpinWhenIdle);
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
  if (quiet < (busy() ? kSpinOnBatch : spin_when_idle_)) {
    CpuRelax();
    return true;
  }
  MutexLock lock(&mu_);
  if (!posted_.empty()) return true;
  if (busy()) {
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
      status = WarmLease(leases_[i], /*all_sizes=*/i == 0, *memory_, registry_,
                         staging_);
    }
    warm.count_down();
  });
  warm.wait();
  return status;
}

}  // namespace gemmd
