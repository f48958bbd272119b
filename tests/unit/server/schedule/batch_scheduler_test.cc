#include "server/schedule/batch_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "proto/error_details.h"
#include "server/schedule/device_loads.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// Long enough for any machine; no test waits for it when it passes.
constexpr auto kPatience = seconds(20);

template <typename Condition>
bool Eventually(Condition condition) {
  const MonotonicTime give_up = MonotonicClock::now() + kPatience;
  while (!condition()) {
    if (MonotonicClock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

class CountingObserver : public BatchObserver {
 public:
  void OnBatch(const Batch& batch, const BatchReport& report) override {
    tasks += report.tasks;
    ++batches;
    if (on_batch) on_batch();
  }
  void OnQueueDepth(int requests, size_t bytes) override {
    depth = requests;
    if (on_depth) on_depth();
  }
  void OnStreams(int device, int change) override {
    const int busy = streams += change;
    int most = most_streams;
    while (most < busy && !most_streams.compare_exchange_weak(most, busy)) {
    }
  }
  void OnDeviceFault(int device, const absl::Status& status) override {
    ++faults;
  }

  std::atomic<int> streams{0};  // of all devices
  std::atomic<int> most_streams{0};
  std::atomic<int> batches{0};
  std::atomic<int> tasks{0};
  std::atomic<int> depth{0};
  std::atomic<int> faults{0};
  std::function<void()> on_batch;
  std::function<void()> on_depth;
};

class BatchSchedulerTest : public ::testing::Test {
 protected:
  // Makes `devices` devices of `streams` streams and a scheduler for them.
  void Start(int devices = 1, int streams = 1, BatchQueueOptions queue = {}) {
    for (int i = 0; i < devices; ++i) {
      devices_.push_back(std::make_unique<FakeDevice>(i, streams));
    }
    scheduler_ = BatchScheduler::Create(
        {.queue = queue, .device_timeout = device_timeout_}, devices_,
        &observer_);
  }

  FakeDevice& device(int i = 0) {
    return static_cast<FakeDevice&>(*devices_[i]);
  }

  std::shared_ptr<Task> Make(Ending& ending, int64_t size = 8,
                             MonotonicTime deadline = kNever,
                             int device = kAnyDevice) {
    TaskSpec spec;
    spec.shape = {size, size, size};
    spec.kernel = &kernel_;
    spec.deadline = deadline;
    spec.device = device;
    spec.input = *pool_.Allocate(64);
    spec.output = *pool_.Allocate(64);
    return std::make_shared<Task>(std::move(spec), ending.For());
  }

  FakePool pool_;
  FakeKernel kernel_{"fake"};
  CountingObserver observer_;
  MonotonicDuration device_timeout_ = seconds(3600);
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<BatchScheduler> scheduler_;
};

TEST_F(BatchSchedulerTest, AnIdleDeviceStartsOnTheSubmittersThread) {
  Start();
  std::thread::id executed_on;
  device().on_execute = [&](const Batch&) {
    executed_on = std::this_thread::get_id();
  };
  Ending ending;
  ASSERT_TRUE(scheduler_->Submit(Make(ending)).ok());
  EXPECT_EQ(executed_on, std::this_thread::get_id());
  EXPECT_TRUE(device().CompleteOne());
  EXPECT_TRUE(ending.result.status.ok());
  EXPECT_EQ(observer_.batches, 1);
}

TEST_F(BatchSchedulerTest, ABatchFormsWhileTheDeviceIsBusy) {
  Start();
  std::vector<Ending> endings(4);
  for (Ending& ending : endings) {
    ASSERT_TRUE(scheduler_->Submit(Make(ending)).ok());
  }
  EXPECT_THAT(device().held_sizes(), ElementsAre(1));
  EXPECT_EQ(scheduler_->queued_requests(), 3);
  EXPECT_EQ(scheduler_->queued_bytes(), 3 * 128u);
  EXPECT_EQ(observer_.depth, 3);
  EXPECT_TRUE(device().CompleteOne());
  EXPECT_THAT(device().held_sizes(), ElementsAre(3));
  EXPECT_EQ(observer_.depth, 0);
  EXPECT_TRUE(device().CompleteOne());
  for (Ending& ending : endings) EXPECT_EQ(ending.times, 1);
}

TEST_F(BatchSchedulerTest, GivesWorkToTheDeviceWithTheLeastLeftToDo) {
  Start(/*devices=*/2, /*streams=*/3);
  std::vector<Ending> endings(7);
  const std::vector<int64_t> sizes = {100, 8, 9, 10, 8, 8, 8};
  for (size_t i = 0; i < endings.size(); ++i) {
    ASSERT_TRUE(scheduler_->Submit(Make(endings[i], sizes[i])).ok());
  }
  // The large one on device 0; the small ones on device 1, until its streams
  // are taken; then on device 0, and the last waits.
  EXPECT_THAT(device(0).held_sizes(), ElementsAre(1, 1, 1));
  EXPECT_THAT(device(1).held_sizes(), ElementsAre(1, 1, 1));
  EXPECT_EQ(scheduler_->queued_requests(), 1);
  EXPECT_TRUE(device(1).CompleteOne());
  EXPECT_TRUE(endings[1].ended());
  EXPECT_EQ(scheduler_->queued_requests(), 0);
  EXPECT_EQ(device(1).held(), 3);
  EXPECT_TRUE(device(0).CompleteOne());
  EXPECT_TRUE(endings[0].ended());
  while (device(0).CompleteOne() || device(1).CompleteOne()) {
  }
}

TEST_F(BatchSchedulerTest, ATimerClosesADelayedBatch) {
  Start(1, 1, {.max_queue_delay = milliseconds(5)});
  std::vector<Ending> endings(2);
  for (Ending& ending : endings) {
    ASSERT_TRUE(scheduler_->Submit(Make(ending)).ok());
  }
  ASSERT_TRUE(Eventually([&] { return device().held() == 1; }));
  EXPECT_THAT(device().held_sizes(), ElementsAre(2));
  device().CompleteOne();
}

TEST_F(BatchSchedulerTest, ExpiresQueuedWorkWhileTheDeviceIsStuck) {
  Start();
  Ending running;
  Ending late;
  Ending patient;
  ASSERT_TRUE(scheduler_->Submit(Make(running)).ok());
  ASSERT_TRUE(scheduler_->Submit(Make(patient)).ok());
  ASSERT_TRUE(
      scheduler_->Submit(Make(late, 8, MonotonicClock::now() + milliseconds(5)))
          .ok());
  ASSERT_TRUE(Eventually([&] { return late.ended(); }));
  EXPECT_EQ(late.result.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient.ended());
  while (device().CompleteOne()) {
  }
  EXPECT_TRUE(patient.result.status.ok());
  EXPECT_EQ(observer_.tasks, 2) << "the device saw the late one";
}

TEST_F(BatchSchedulerTest, RefusesATaskThatIsLateAndDoesNotEndIt) {
  Start();
  Ending ending;
  std::shared_ptr<Task> task = Make(ending, 8, MonotonicClock::now());
  EXPECT_EQ(scheduler_->Submit(task).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(ending.times, 0);
  EXPECT_TRUE(task->Abort(absl::CancelledError("")));
}

TEST_F(BatchSchedulerTest, ACancelledTaskNeverReachesTheDevice) {
  Start();
  Ending running;
  Ending cancelled;
  ASSERT_TRUE(scheduler_->Submit(Make(running)).ok());
  std::shared_ptr<Task> task = Make(cancelled);
  ASSERT_TRUE(scheduler_->Submit(task).ok());
  EXPECT_TRUE(task->Abort(absl::CancelledError("by the client")));
  EXPECT_TRUE(device().CompleteOne());
  EXPECT_EQ(device().executed(), 1);
  EXPECT_EQ(scheduler_->queued_requests(), 0);
  EXPECT_EQ(observer_.depth, 0);
}

// I2: if a lock were held across any of these calls, they would lock it again
// and never return.
TEST_F(BatchSchedulerTest, HoldsNoLockWhileItCallsOut) {
  Start(1, 2);
  std::atomic<int> calls{0};
  const auto call_back = [&] {
    scheduler_->queued_requests();
    scheduler_->queued_bytes();
    ++calls;
  };
  std::vector<Ending> nested(3);
  std::atomic<size_t> next_nested{0};
  const auto submit_once_more = [&] {
    call_back();
    const size_t i = next_nested++;
    if (i < nested.size()) {
      ASSERT_TRUE(scheduler_->Submit(Make(nested[i])).ok());
    }
  };
  device().on_execute = [&](const Batch&) { submit_once_more(); };
  observer_.on_batch = submit_once_more;
  observer_.on_depth = call_back;
  TaskSpec spec;
  spec.shape = {8, 8, 8};
  spec.kernel = &kernel_;
  std::atomic<bool> ended{false};
  ASSERT_TRUE(scheduler_
                  ->Submit(std::make_shared<Task>(std::move(spec),
                                                  [&](TaskResult) {
                                                    submit_once_more();
                                                    ended = true;
                                                  }))
                  .ok());
  while (device().CompleteOne()) {
  }
  EXPECT_TRUE(ended);
  for (Ending& ending : nested) EXPECT_EQ(ending.times, 1);
  EXPECT_GE(calls, 4);
}

TEST_F(BatchSchedulerTest, DrainRunsWhatWaitsAndRefusesTheRest) {
  Start(1, 1, {.max_queue_delay = seconds(3600)});
  std::vector<Ending> endings(3);
  for (Ending& ending : endings) {
    ASSERT_TRUE(scheduler_->Submit(Make(ending)).ok());
  }
  EXPECT_EQ(device().held(), 0);
  std::thread completer(
      [&] { EXPECT_TRUE(Eventually([&] { return device().CompleteOne(); })); });
  EXPECT_TRUE(scheduler_->Drain(kNever));
  completer.join();
  for (Ending& ending : endings) EXPECT_TRUE(ending.result.status.ok());
  Ending refused;
  std::shared_ptr<Task> task = Make(refused);
  const absl::Status status = scheduler_->Submit(task);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelay(status).has_value());
  EXPECT_EQ(refused.times, 0);
  task->Abort(status);
}

TEST_F(BatchSchedulerTest, DrainCutsOffWhatIsQueuedAtItsDeadline) {
  Start();
  Ending running;
  Ending queued;
  ASSERT_TRUE(scheduler_->Submit(Make(running)).ok());
  ASSERT_TRUE(scheduler_->Submit(Make(queued)).ok());
  EXPECT_FALSE(scheduler_->Drain(MonotonicClock::now() + milliseconds(5)));
  EXPECT_EQ(queued.result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelay(queued.result.status).has_value());
  EXPECT_FALSE(running.ended()) << "what runs is left to the device";
  device().CompleteOne();
  EXPECT_TRUE(running.result.status.ok());
  EXPECT_TRUE(scheduler_->Drain(MonotonicClock::now()));
  EXPECT_EQ(observer_.depth, 0);
}

TEST_F(BatchSchedulerTest, DestructionEndsWhatIsQueuedAndAwaitsWhatRuns) {
  Start();
  Ending running;
  Ending queued;
  ASSERT_TRUE(scheduler_->Submit(Make(running)).ok());
  ASSERT_TRUE(scheduler_->Submit(Make(queued)).ok());
  std::thread destroyer([&] { scheduler_.reset(); });
  EXPECT_TRUE(Eventually([&] { return queued.ended(); }));
  EXPECT_EQ(queued.result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(running.ended());
  device().CompleteOne();
  destroyer.join();
  EXPECT_TRUE(running.result.status.ok());
}

TEST_F(BatchSchedulerTest, ALostDeviceIsToldOnceAndGetsNoMore) {
  Start(/*devices=*/2, /*streams=*/1);
  std::vector<Ending> endings(4);
  for (Ending& ending : endings) {
    ASSERT_TRUE(scheduler_->Submit(Make(ending)).ok());
  }
  EXPECT_TRUE(device(0).CompleteOne(absl::InternalError("fault")));
  EXPECT_EQ(endings[0].result.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(observer_.faults, 1);
  EXPECT_EQ(device(0).held(), 0);
  EXPECT_TRUE(device(1).CompleteOne());  // takes the two that wait
  EXPECT_THAT(device(1).held_sizes(), ElementsAre(2));
  Ending stranded;
  ASSERT_TRUE(scheduler_->Submit(Make(stranded)).ok());
  EXPECT_TRUE(device(1).CompleteOne(absl::InternalError("fault")));
  EXPECT_EQ(observer_.faults, 2);
  EXPECT_EQ(stranded.result.status.code(), absl::StatusCode::kUnavailable)
      << "it never began, so it may be tried elsewhere";
  Ending refused;
  std::shared_ptr<Task> task = Make(refused);
  EXPECT_EQ(scheduler_->Submit(task).code(), absl::StatusCode::kUnavailable);
  task->Abort(absl::CancelledError(""));
}

TEST_F(BatchSchedulerTest, ATaskWaitsForItsOwnDevice) {
  Start(/*devices=*/3);
  std::vector<Ending> endings(4);
  for (Ending& ending : endings) {
    ASSERT_TRUE(scheduler_->Submit(Make(ending, 8, kNever, 1)).ok());
  }
  EXPECT_EQ(device(0).held() + device(2).held(), 0);
  EXPECT_THAT(device(1).held_sizes(), ElementsAre(1));
  EXPECT_GT(scheduler_->outstanding(1), 0);
  EXPECT_EQ(scheduler_->outstanding(0), 0);
  Ending anywhere;
  ASSERT_TRUE(scheduler_->Submit(Make(anywhere)).ok());
  EXPECT_EQ(device(0).held(), 1) << "it need not wait for device 1";
  EXPECT_TRUE(device(0).CompleteOne());
  EXPECT_EQ(device(0).held(), 0);
  EXPECT_TRUE(device(1).CompleteOne());
  EXPECT_THAT(device(1).held_sizes(), ElementsAre(3));
  EXPECT_TRUE(device(1).CompleteOne());
  EXPECT_EQ(scheduler_->outstanding(1), 0);
  for (Ending& ending : endings) EXPECT_TRUE(ending.result.status.ok());
}

TEST_F(BatchSchedulerTest, WhatALostDeviceHoldsIsLostWithIt) {
  Start(/*devices=*/2);
  Ending running;
  Ending bound;
  Ending anywhere;
  ASSERT_TRUE(scheduler_->Submit(Make(running, 8, kNever, 0)).ok());
  ASSERT_TRUE(scheduler_->Submit(Make(bound, 8, kNever, 0)).ok());
  Ending other;
  ASSERT_TRUE(scheduler_->Submit(Make(other, 8, kNever, 1)).ok());
  ASSERT_TRUE(scheduler_->Submit(Make(anywhere)).ok());
  EXPECT_TRUE(device(0).CompleteOne(absl::InternalError("fault")));
  EXPECT_EQ(bound.result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(anywhere.ended());
  Ending refused;
  std::shared_ptr<Task> task = Make(refused, 8, kNever, 0);
  EXPECT_EQ(scheduler_->Submit(task).code(), absl::StatusCode::kUnavailable);
  task->Abort(absl::CancelledError(""));
  while (device(1).CompleteOne()) {
  }
  EXPECT_TRUE(anywhere.result.status.ok());
}

// A device that never comes back: what it holds is ended, it gets no more, the
// drain does not wait for it, and what it does later harms nobody.
TEST_F(BatchSchedulerTest, AStuckDeviceIsGivenUp) {
  device_timeout_ = milliseconds(20);
  Start(/*devices=*/2);
  Ending running;
  Ending started;
  Ending queued;
  Ending other;
  ASSERT_TRUE(scheduler_->Submit(Make(other, 8, kNever, 1)).ok());
  EXPECT_TRUE(device(1).CompleteOne());
  std::shared_ptr<Task> task = Make(started, 8, kNever, 0);
  ASSERT_TRUE(scheduler_->Submit(task).ok());
  ASSERT_TRUE(task->Start());
  ASSERT_TRUE(scheduler_->Submit(Make(queued, 8, kNever, 0)).ok());
  ASSERT_TRUE(Eventually([&] { return started.ended(); }));
  EXPECT_EQ(started.result.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ErrorReason(started.result.status), "DEVICE_STUCK");
  EXPECT_EQ(queued.result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(observer_.faults, 1);
  EXPECT_TRUE(scheduler_->stuck());
  EXPECT_TRUE(scheduler_->Submit(Make(running)).ok());
  EXPECT_EQ(device(0).held(), 1);
  EXPECT_TRUE(device(1).CompleteOne()) << "the other one goes on";
  EXPECT_TRUE(scheduler_->Drain(MonotonicClock::now() + kPatience));
  task->Finish(absl::OkStatus(), {}, 0, 1);
  EXPECT_TRUE(device(0).CompleteOne());  // at last
  EXPECT_FALSE(scheduler_->stuck());
  EXPECT_EQ(started.times, 1);
  EXPECT_EQ(observer_.faults, 1);
  EXPECT_EQ(pool_.used_bytes(), 2 * 64u) << "but for the two answers";
}

// Its oldest batch is what counts, however many have ended.
TEST(DeviceLoadsTest, ADeviceThatEndsItsWorkIsNotStuck) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<FakeDevice>(/*index=*/0, /*streams=*/2));
  DeviceLoads loads(devices, milliseconds(50));
  const MonotonicTime start{seconds(1000)};
  EXPECT_EQ(loads.StuckAt(0), kNever);
  auto older = loads.Begin(0, {}, start);
  for (int ms = 10; ms < 300; ms += 10) {
    const MonotonicTime now = start + milliseconds(ms);
    const auto newer = loads.Begin(0, {}, now);
    loads.End(older);
    older = newer;
    EXPECT_EQ(loads.StuckAt(0), now + milliseconds(50));
  }
}

TEST_F(BatchSchedulerTest, ALargeProductHasTheTimeItNeeds) {
  device_timeout_ = milliseconds(1);
  Start();
  Ending large;  // ten times 2e8 operations at 1e8 a second
  ASSERT_TRUE(scheduler_->Submit(Make(large, 464)).ok());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(observer_.faults, 0);
  EXPECT_TRUE(device().CompleteOne());
  EXPECT_TRUE(large.result.status.ok());
}

// I1: submitters, cancellers, deadlines, devices that fail and a drain, all at
// once; every task taken ends once, none that was refused ends, and all memory
// comes back.
TEST_F(BatchSchedulerTest, EveryTaskEndsExactlyOnceUnderStress) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int kSubmitters = 3;
  constexpr int kTasksEach = 4000;
  for (const bool cut_off : {false, true}) {
    devices_.clear();
    Start(/*devices=*/2, /*streams=*/2,
          {.max_batch_requests = 5,
           .max_queue_delay = std::chrono::microseconds(50)});
    std::atomic<bool> stop{false};
    std::vector<std::thread> completers;
    for (int d = 0; d < 2; ++d) {
      completers.emplace_back([&, d] {
        std::mt19937 random(seed + 100 + d);
        while (!stop) {
          if (random() % 8 == 0) std::this_thread::yield();
          device(d).CompleteOne();
        }
      });
    }
    std::vector<Ending> endings(kSubmitters * kTasksEach);
    std::atomic<int> taken{0};
    std::vector<std::thread> submitters;
    for (int s = 0; s < kSubmitters; ++s) {
      submitters.emplace_back([&, s] {
        std::mt19937 random(seed + s);
        for (int i = 0; i < kTasksEach; ++i) {
          Ending& ending = endings[s * kTasksEach + i];
          const MonotonicTime deadline =
              random() % 4 == 0 ? MonotonicClock::now() +
                                      std::chrono::microseconds(random() % 300)
                                : kNever;
          std::shared_ptr<Task> task = Make(ending, 1 + random() % 3, deadline);
          if (const absl::Status status = scheduler_->Submit(task);
              status.ok()) {
            ++taken;
            if (random() % 4 == 0) task->Abort(absl::CancelledError(""));
          } else {
            ASSERT_EQ(ending.times, 0);
            ASSERT_TRUE(task->Abort(status));
          }
        }
      });
    }
    if (cut_off) {
      ASSERT_TRUE(Eventually([&] { return taken > 100; }));
      scheduler_->Drain(MonotonicClock::now());
    }
    for (std::thread& thread : submitters) thread.join();
    scheduler_->Drain(kNever);
    EXPECT_EQ(observer_.depth, 0);
    scheduler_.reset();
    EXPECT_EQ(observer_.streams, 0);
    EXPECT_EQ(observer_.most_streams, 2 * 2);
    stop = true;
    for (std::thread& thread : completers) thread.join();
    for (Ending& ending : endings) {
      ASSERT_EQ(ending.times, 1);
      ending.result.output.Reset();
    }
    EXPECT_EQ(pool_.used_bytes(), 0u);
    EXPECT_GT(taken, 0);
  }
}

}  // namespace
}  // namespace gemmd
