#include "server/schedule/batch_scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"
#include "server/mutex.h"
#include "server/schedule/depth_reporter.h"
#include "server/schedule/device_loads.h"

namespace gemmd {
namespace {

constexpr absl::Duration kRestartDelay = absl::Seconds(1);

absl::Status NoDeviceError() {
  return UnavailableRetryError(
      "the server has lost the devices that could do this and is about to "
      "restart",
      kRestartDelay);
}

class BatchSchedulerImpl : public BatchScheduler {
 public:
  BatchSchedulerImpl(const BatchSchedulerOptions& options,
                     std::span<const std::unique_ptr<Device>> devices,
                     BatchObserver* observer);
  ~BatchSchedulerImpl() override;

  absl::Status Submit(std::shared_ptr<Task> task, bool hold) override;
  void Release() override;
  bool Drain(MonotonicTime deadline) override;
  void DeviceFailed(int device, const absl::Status& status) override;
  bool stuck() const override;
  double outstanding(int device) const override;
  int queued_requests() const override;
  size_t queued_bytes() const override;

 private:
  using Run = DeviceLoads::Runs::iterator;

  // What one look at the queue found to do, to be done without the lock.
  struct Work {
    std::vector<std::shared_ptr<Task>> expired;
    std::vector<Run> runs;
    bool depth_changed = false;  // the queue's
  };

  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SignalIfIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The device that would get the task now, -1 if none is free.
  int FreeDeviceFor(const Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Begin(int device, Batch batch, MonotonicTime now, Work* work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::pair<int, size_t> Depth() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return {queue_.requests(), queue_.bytes()};
  }
  // Takes from the queue what is due, and sets the timer for what is not.
  Work TakeDue(MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  MonotonicTime NextEvent() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeTimerFor(MonotonicTime next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Do(Work work) ABSL_LOCKS_EXCLUDED(mu_);
  void Pump() ABSL_LOCKS_EXCLUDED(mu_);
  void Abort(std::vector<std::shared_ptr<Task>> tasks,
             const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void Execute(Run run) ABSL_LOCKS_EXCLUDED(mu_);
  void BatchDone(Run run, const BatchReport& report) ABSL_LOCKS_EXCLUDED(mu_);
  void DeviceLost(int device, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);
  void LookForStuckDevices() ABSL_LOCKS_EXCLUDED(mu_);
  void DeviceStuck(int device, std::vector<std::shared_ptr<Task>> running)
      ABSL_LOCKS_EXCLUDED(mu_);
  void ReportDepth() ABSL_LOCKS_EXCLUDED(mu_);
  void TimerLoop() ABSL_LOCKS_EXCLUDED(mu_);

  const std::span<const std::unique_ptr<Device>> devices_;
  BatchObserver* const observer_;
  const MonotonicDuration device_timeout_;
  DepthReporter depth_;

  mutable Mutex mu_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  std::pair<int, size_t> depth_seen_ ABSL_GUARDED_BY(mu_) = {0, 0};  // told of
  DeviceLoads loads_ ABSL_GUARDED_BY(mu_);
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  // Batches and groups of expired tasks that have left the queue and are not
  // dealt with yet.
  int busy_ ABSL_GUARDED_BY(mu_) = 0;
  CondVar idle_;  // Idle()

  CondVar timer_;
  MonotonicTime timer_wakes_ ABSL_GUARDED_BY(mu_) = kNever;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread timer_thread_;  // last: it uses all of the above
};

BatchSchedulerImpl::BatchSchedulerImpl(
    const BatchSchedulerOptions& options,
    std::span<const std::unique_ptr<Device>> devices, BatchObserver* observer)
    : devices_(devices),
      observer_(observer),
      device_timeout_(options.device_timeout),
      depth_(observer),
      queue_(options.queue, static_cast<int>(devices.size())),
      loads_(devices, options.device_timeout) {
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

absl::Status BatchSchedulerImpl::Submit(std::shared_ptr<Task> task, bool hold) {
  const MonotonicTime now = MonotonicClock::now();
  Work work;
  {
    MutexLock lock(&mu_);
    if (draining_) {
      return UnavailableRetryError(
          "the server is shutting down and takes no new requests",
          kRestartDelay);
    }
    if (!loads_.IsSound(task->spec().device)) return NoDeviceError();
    // Copies: if this were the last owner of a task that is refused, the task
    // would end here, under the lock.
    const int device = hold || !queue_.MayPass() ? -1 : FreeDeviceFor(*task);
    if (device >= 0) {
      absl::StatusOr<Batch> batch = queue_.Pass(task, device, now);
      if (!batch.ok()) return batch.status();
      Begin(device, *std::move(batch), now, &work);
      WakeTimerFor(NextEvent());
    } else {
      if (absl::Status status = queue_.Push(task, now, hold); !status.ok()) {
        return status;
      }
      work = TakeDue(now);
    }
  }
  Do(std::move(work));
  return absl::OkStatus();
}

void BatchSchedulerImpl::Release() {
  Work work;
  {
    MutexLock lock(&mu_);
    if (!queue_.Release()) return;
    work = TakeDue(MonotonicClock::now());
  }
  Do(std::move(work));
}

bool BatchSchedulerImpl::Drain(MonotonicTime deadline) {
  {
    MutexLock lock(&mu_);
    draining_ = true;
    queue_.BeginDrain();
  }
  Pump();
  std::vector<std::shared_ptr<Task>> cut_off;
  bool running;
  {
    MutexLock lock(&mu_);
    while (!Idle() && MonotonicClock::now() < deadline) {
      idle_.WaitUntil(&mu_, deadline);
    }
    running = busy_ > loads_.abandoned_runs();
    cut_off = queue_.TakeAll();
    depth_seen_ = Depth();
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

void BatchSchedulerImpl::DeviceFailed(int device, const absl::Status& status) {
  bool newly_lost = false;
  {
    MutexLock lock(&mu_);
    newly_lost = loads_.Lose(device);
  }
  if (newly_lost) DeviceLost(device, status);
}

bool BatchSchedulerImpl::stuck() const {
  MutexLock lock(&mu_);
  return loads_.abandoned_runs() > 0;
}

double BatchSchedulerImpl::outstanding(int device) const {
  MutexLock lock(&mu_);
  return loads_.cost(device) + queue_.cost(device);
}

int BatchSchedulerImpl::queued_requests() const {
  MutexLock lock(&mu_);
  return queue_.requests();
}

size_t BatchSchedulerImpl::queued_bytes() const {
  MutexLock lock(&mu_);
  return queue_.bytes();
}

bool BatchSchedulerImpl::Idle() const {
  return queue_.requests() == 0 && busy_ == loads_.abandoned_runs();
}

void BatchSchedulerImpl::SignalIfIdle() {
  if (Idle()) idle_.SignalAll();
}

BatchSchedulerImpl::Work BatchSchedulerImpl::TakeDue(MonotonicTime now) {
  Work work;
  work.expired = queue_.TakeExpired(now);
  if (!work.expired.empty()) ++busy_;
  loads_.NextRound();
  for (int device; (device = loads_.LeastLoaded()) >= 0;) {
    Batch batch = queue_.Pop(device, now);
    if (batch.tasks.empty()) {
      loads_.PassOver(device);
    } else {
      Begin(device, std::move(batch), now, &work);
    }
  }
  const std::pair<int, size_t> depth = Depth();
  work.depth_changed = std::exchange(depth_seen_, depth) != depth;
  WakeTimerFor(NextEvent());
  SignalIfIdle();
  return work;
}

int BatchSchedulerImpl::FreeDeviceFor(const Task& task) {
  const int device = task.spec().device;
  if (device != kAnyDevice) return loads_.IsFree(device) ? device : -1;
  loads_.NextRound();
  return loads_.LeastLoaded();
}

void BatchSchedulerImpl::Begin(int device, Batch batch, MonotonicTime now,
                               Work* work) {
  work->runs.push_back(loads_.Begin(device, std::move(batch), now));
  ++busy_;
}

MonotonicTime BatchSchedulerImpl::NextEvent() const {
  MonotonicTime next = queue_.NextDeadline();
  for (int device = 0; device < loads_.size(); ++device) {
    next = std::min(next, loads_.StuckAt(device));
    if (loads_.IsFree(device)) next = std::min(next, queue_.NextDue(device));
  }
  return next;
}

void BatchSchedulerImpl::WakeTimerFor(MonotonicTime next) {
  if (next >= timer_wakes_) return;
  timer_wakes_ = next;
  timer_.Signal();
}

void BatchSchedulerImpl::Do(Work work) {
  for (const Run run : work.runs) Execute(run);
  if (!work.expired.empty()) {
    Abort(std::move(work.expired),
          absl::DeadlineExceededError(
              "the deadline passed while the request waited for a device"));
  }
  // Not where an idle device took what came: nobody saw it wait.
  if (work.depth_changed) ReportDepth();
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
  SignalIfIdle();
}

void BatchSchedulerImpl::Execute(Run run) {
  if (observer_ != nullptr) observer_->OnStreams(run->device, 1);
  devices_[run->device]->Execute(
      run->batch,
      [this, run](const BatchReport& report) { BatchDone(run, report); });
}

void BatchSchedulerImpl::BatchDone(Run run, const BatchReport& report) {
  bool newly_lost = false;
  if (observer_ != nullptr) observer_->OnStreams(run->device, -1);
  DeviceLoads::Runs ended;
  Work work;
  {
    MutexLock lock(&mu_);
    ended = loads_.End(run);
    newly_lost = !report.status.ok() && loads_.Lose(run->device);
    work = TakeDue(MonotonicClock::now());
  }
  // The device first: it should not idle while figures are kept.
  Do(std::move(work));
  if (observer_ != nullptr) observer_->OnBatch(run->batch, report);
  if (newly_lost) DeviceLost(run->device, report.status);
  ended.clear();
  // Last, since a destructor may be waiting for it.
  MutexLock lock(&mu_);
  --busy_;
  SignalIfIdle();
}

void BatchSchedulerImpl::DeviceLost(int device, const absl::Status& status) {
  std::vector<std::shared_ptr<Task>> stranded;
  {
    MutexLock lock(&mu_);
    stranded = loads_.IsSound(kAnyDevice) ? queue_.TakeBoundTo(device)
                                          : queue_.TakeAll();
    depth_seen_ = Depth();
    ++busy_;
  }
  if (observer_ != nullptr) observer_->OnDeviceFault(device, status);
  Abort(std::move(stranded), NoDeviceError());
  ReportDepth();
}

void BatchSchedulerImpl::LookForStuckDevices() {
  const MonotonicTime now = MonotonicClock::now();
  std::vector<std::pair<int, std::vector<std::shared_ptr<Task>>>> found;
  {
    MutexLock lock(&mu_);
    for (int device = 0; device < loads_.size(); ++device) {
      if (loads_.StuckAt(device) <= now) {
        found.emplace_back(device, loads_.Abandon(device));
      }
    }
  }
  for (auto& [device, tasks] : found) DeviceStuck(device, std::move(tasks));
}

void BatchSchedulerImpl::DeviceStuck(
    int device, std::vector<std::shared_ptr<Task>> running) {
  DeviceLost(device,
             absl::InternalError(absl::StrCat(
                 "the device has ended no batch for longer than ",
                 absl::FormatDuration(absl::FromChrono(device_timeout_)),
                 " and what its work takes (--device-timeout)")));
  for (const std::shared_ptr<Task>& task : running) {
    if (task->Abort(NoDeviceError())) continue;
    task->Abandon(FaultError(
        "DEVICE_STUCK",
        "the device did not come to an end with the request; the server will "
        "restart",
        {{"device", absl::StrCat(device)}}));
  }
}

void BatchSchedulerImpl::ReportDepth() {
  depth_.Report([this] {
    MutexLock lock(&mu_);
    return Depth();
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
    LookForStuckDevices();
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
