#include "server/schedule/batch_scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/error_details.h"
#include "server/mutex.h"
#include "server/schedule/depth_reporter.h"

namespace gemmd {
namespace {

constexpr absl::Duration kRestartDelay = absl::Seconds(1);

class BatchSchedulerImpl : public BatchScheduler {
 public:
  BatchSchedulerImpl(const BatchSchedulerOptions& options,
                     std::span<const std::unique_ptr<Device>> devices,
                     BatchObserver* observer);
  ~BatchSchedulerImpl() override;

  absl::Status Submit(std::shared_ptr<Task> task) override;
  bool Drain(MonotonicTime deadline) override;
  int queued_requests() const override;
  size_t queued_bytes() const override;

 private:
  struct DeviceState {
    Device* device;
    int free_streams;
    double outstanding_flops = 0;
    bool lost = false;
  };

  // A batch and the stream it was given.
  struct Dispatch {
    DeviceState* device;
    Batch batch;
    double flops = 0;
  };

  // What one look at the queue found to do, to be done without the lock.
  struct Work {
    std::vector<std::shared_ptr<Task>> expired;
    std::vector<Dispatch> dispatches;
  };

  // The sound device with a free stream and the least work; null if none.
  DeviceState* FreeDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AnySoundDevice() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes from the queue what is due, and sets the timer for what is not.
  Work TakeDue(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeTimerFor(MonotonicTime next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(Work work) ABSL_LOCKS_EXCLUDED(mu_);
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(std::vector<std::shared_ptr<Task>> tasks,
             const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void Execute(Dispatch dispatch) ABSL_LOCKS_EXCLUDED(mu_);
  void BatchDone(DeviceState* device, const Batch& batch, double flops,
                 const BatchReport& report) ABSL_LOCKS_EXCLUDED(mu_);
  void DeviceLost(const BatchReport& report) ABSL_LOCKS_EXCLUDED(mu_);
  void ReportDepth() ABSL_LOCKS_EXCLUDED(mu_);
  void TimerLoop() ABSL_LOCKS_EXCLUDED(mu_);

  BatchObserver* const observer_;
  DepthReporter depth_;

  mutable Mutex mu_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  std::vector<DeviceState> devices_ ABSL_GUARDED_BY(mu_);  // never resized
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  // Batches and groups of expired tasks that have left the queue and are not
  // dealt with yet.
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar idle_;  // the queue is empty and busy_ is 0

  CondVar timer_;
  MonotonicTime timer_wakes_ ABSL_GUARDED_BY(mu_) = kNever;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread timer_thread_;  // last: it uses all of the above
};

BatchSchedulerImpl::BatchSchedulerImpl(
    const BatchSchedulerOptions& options,
    std::span<const std::unique_ptr<Device>> devices, BatchObserver* observer)
    : observer_(observer), depth_(observer), queue_(options.queue) {
  for (const std::unique_ptr<Device>& device : devices) {
    devices_.push_back({device.get(), device->info().streams});
  }
  timer_thread_ = std::thread([this] { TimerLoop(); });
  pthread_setname_np(timer_thread_.native_handle(), "gemmd-timer");
}

BatchSchedulerImpl::~BatchSchedulerImpl() {
  Drain(MonotonicClock::now());
  {
    MutexLock lock(&mu_);
    while (busy_ > 0) idle_.Wait(&mu_);
    stopping_ = true;
    timer_.Signal();
  }
  timer_thread_.join();
}

absl::Status BatchSchedulerImpl::Submit(std::shared_ptr<Task> task) {
  const MonotonicTime now = MonotonicClock::now();
  Work work;
  {
    MutexLock lock(&mu_);
    if (draining_) {
      return UnavailableRetryError(
          "the server is shutting down and takes no new requests",
          kRestartDelay);
    }
    if (!AnySoundDevice()) {
      return UnavailableRetryError(
          "the server has lost its devices and is about to restart",
          kRestartDelay);
    }
    // A copy: if this were the last owner of a task that is refused, the task
    // would end here, under the lock.
    if (absl::Status status = queue_.Push(task, now); !status.ok()) {
      return status;
    }
    work = TakeDue(now);
  }
  Do(std::move(work));
  return absl::OkStatus();
}

bool BatchSchedulerImpl::Drain(MonotonicTime deadline) {
  {
    MutexLock lock(&mu_);
    draining_ = true;
  }
  Pump();
  std::vector<std::shared_ptr<Task>> cut_off;
  bool running;
  {
    MutexLock lock(&mu_);
    while ((queue_.requests() > 0 || busy_ > 0) &&
           MonotonicClock::now() < deadline) {
      idle_.WaitUntil(&mu_, deadline);
    }
    running = busy_ > 0;
    cut_off = queue_.TakeAll();
    ++busy_;
  }
  const bool complete = cut_off.empty() && !running;
  Abort(std::move(cut_off),
        UnavailableRetryError(
            "the server shut down before the request's turn came",
            kRestartDelay));
  ReportDepth();
  return complete;
}

int BatchSchedulerImpl::queued_requests() const {
  MutexLock lock(&mu_);
  return queue_.requests();
}

size_t BatchSchedulerImpl::queued_bytes() const {
  MutexLock lock(&mu_);
  return queue_.bytes();
}

BatchSchedulerImpl::DeviceState* BatchSchedulerImpl::FreeDevice() {
  DeviceState* best = nullptr;
  for (DeviceState& state : devices_) {
    if (state.lost || state.free_streams == 0) continue;
    if (best == nullptr || state.outstanding_flops < best->outstanding_flops) {
      best = &state;
    }
  }
  return best;
}

bool BatchSchedulerImpl::AnySoundDevice() const {
  return std::any_of(devices_.begin(), devices_.end(),
                     [](const DeviceState& state) { return !state.lost; });
}

BatchSchedulerImpl::Work BatchSchedulerImpl::TakeDue(MonotonicTime now) {
  Work work;
  work.expired = queue_.TakeExpired(now);
  if (!work.expired.empty()) ++busy_;
  DeviceState* device;
  while ((device = FreeDevice()) != nullptr) {
    Batch batch = queue_.Pop(now, draining_);
    if (batch.tasks.empty()) break;
    double flops = 0;
    for (const auto& task : batch.tasks) flops += task->spec().shape.flops();
    --device->free_streams;
    device->outstanding_flops += flops;
    ++busy_;
    work.dispatches.push_back({device, std::move(batch), flops});
  }
  WakeTimerFor(queue_.NextEvent(/*stream_free=*/device != nullptr));
  if (queue_.requests() == 0 && busy_ == 0) idle_.SignalAll();
  return work;
}

void BatchSchedulerImpl::WakeTimerFor(MonotonicTime next) {
  if (next >= timer_wakes_) return;
  timer_wakes_ = next;
  timer_.Signal();
}

void BatchSchedulerImpl::Do(Work work) {
  for (Dispatch& dispatch : work.dispatches) Execute(std::move(dispatch));
  if (!work.expired.empty()) {
    Abort(std::move(work.expired),
          absl::DeadlineExceededError(
              "the deadline passed while the request waited for a device"));
  }
  ReportDepth();
}

void BatchSchedulerImpl::Pump() {
  Work work;
  {
    MutexLock lock(&mu_);
    work = TakeDue(MonotonicClock::now());
  }
  Do(std::move(work));
}

// Needs: busy_ counts the group.
void BatchSchedulerImpl::Abort(std::vector<std::shared_ptr<Task>> tasks,
                               const absl::Status& status) {
  for (std::shared_ptr<Task>& task : tasks) {
    task->Abort(status);
    task.reset();
  }
  MutexLock lock(&mu_);
  --busy_;
  if (queue_.requests() == 0 && busy_ == 0) idle_.SignalAll();
}

void BatchSchedulerImpl::Execute(Dispatch dispatch) {
  Device* const device = dispatch.device->device;
  Batch batch = dispatch.batch;
  if (observer_ != nullptr) observer_->OnStreams(device->info().index, 1);
  device->Execute(std::move(batch), [this, dispatch = std::move(dispatch)](
                                        const BatchReport& report) {
    BatchDone(dispatch.device, dispatch.batch, dispatch.flops, report);
  });
}

void BatchSchedulerImpl::BatchDone(DeviceState* device, const Batch& batch,
                                   double flops, const BatchReport& report) {
  bool newly_lost = false;
  if (observer_ != nullptr) {
    observer_->OnStreams(device->device->info().index, -1);
  }
  Work work;
  {
    MutexLock lock(&mu_);
    ++device->free_streams;
    device->outstanding_flops -= flops;
    if (!report.status.ok() && !device->lost) {
      device->lost = true;
      newly_lost = true;
    }
    work = TakeDue(MonotonicClock::now());
  }
  // The device first: it should not idle while figures are kept.
  Do(std::move(work));
  if (observer_ != nullptr) observer_->OnBatch(batch, report);
  if (newly_lost) DeviceLost(report);
  // Last, since a destructor may be waiting for it.
  MutexLock lock(&mu_);
  --busy_;
  if (queue_.requests() == 0 && busy_ == 0) idle_.SignalAll();
}

void BatchSchedulerImpl::DeviceLost(const BatchReport& report) {
  std::vector<std::shared_ptr<Task>> stranded;
  {
    MutexLock lock(&mu_);
    if (!AnySoundDevice()) stranded = queue_.TakeAll();
    ++busy_;
  }
  if (observer_ != nullptr) {
    observer_->OnDeviceFault(report.device, report.status);
  }
  Abort(std::move(stranded),
        UnavailableRetryError(
            "the server lost its devices before the request's turn came",
            kRestartDelay));
  ReportDepth();
}

void BatchSchedulerImpl::ReportDepth() {
  depth_.Report([this] {
    MutexLock lock(&mu_);
    return std::pair(queue_.requests(), queue_.bytes());
  });
}

void BatchSchedulerImpl::TimerLoop() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (!stopping_ && timer_wakes_ > MonotonicClock::now()) {
        timer_.WaitUntil(&mu_, timer_wakes_);
      }
      if (stopping_) return;
      timer_wakes_ = kNever;  // TakeDue sets it anew
    }
    Pump();
  }
}

}  // namespace

std::unique_ptr<BatchScheduler> BatchScheduler::Create(
    const BatchSchedulerOptions& options,
    std::span<const std::unique_ptr<Device>> devices, BatchObserver* observer) {
  return std::make_unique<BatchSchedulerImpl>(options, devices, observer);
}

}  // namespace gemmd
