#include "server/schedule/task.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

TaskSpec SpecWithBuffers(FakePool& pool) {
  TaskSpec spec;
  spec.input = *pool.Allocate(96);
  spec.output = *pool.Allocate(32);
  return spec;
}

TEST(TaskTest, FinishesOnceWithItsOutput) {
  FakePool pool;
  Ending ending;
  {
    Task task(SpecWithBuffers(pool), ending.For());
    EXPECT_EQ(task.bytes(), 128u);
    ASSERT_TRUE(task.Start());
    EXPECT_FALSE(task.ended());
    StageSeconds seconds;
    seconds.compute = 0.5;
    task.Finish(absl::OkStatus(), seconds, /*device=*/3, /*batch_size=*/7);
    EXPECT_TRUE(task.ended());
    EXPECT_FALSE(task.Abort(absl::CancelledError("late")));
    EXPECT_FALSE(task.Start());
  }
  EXPECT_EQ(ending.times, 1);
  EXPECT_TRUE(ending.result.status.ok());
  EXPECT_EQ(ending.result.output.size(), 32u);
  EXPECT_EQ(ending.result.seconds.compute, 0.5);
  EXPECT_EQ(ending.result.device, 3);
  EXPECT_EQ(ending.result.batch_size, 7);
  EXPECT_EQ(pool.used_bytes(), 32u) << "the input was not given back";
  ending.result.output.Reset();
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(TaskTest, GivesNoOutputAndAllMemoryBackOnFailure) {
  FakePool pool;
  Ending ending;
  Task task(SpecWithBuffers(pool), ending.For());
  ASSERT_TRUE(task.Start());
  task.Finish(absl::InternalError("broken"), {}, 0, 1);
  EXPECT_EQ(ending.result.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ending.result.output.size(), 0u);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(TaskTest, AbortedWhileQueuedNeverRuns) {
  FakePool pool;
  Ending ending;
  Task task(SpecWithBuffers(pool), ending.For());
  EXPECT_TRUE(task.Abort(absl::CancelledError("by the client")));
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(task.bytes(), 128u) << "the queue's books need it still";
  EXPECT_FALSE(task.Start());
  EXPECT_FALSE(task.Abort(absl::CancelledError("twice")));
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ending.result.status.code(), absl::StatusCode::kCancelled);
}

TEST(TaskTest, AbortedItLetsGoOfItsResidentOutput) {
  TaskSpec spec;
  const auto owner = std::make_shared<int>();
  spec.output_resident = std::shared_ptr<StoredMatrix>(owner, nullptr);
  spec.b.resident = std::shared_ptr<StoredMatrix>(owner, nullptr);
  Ending ending;
  Task task(std::move(spec), ending.For());
  EXPECT_EQ(owner.use_count(), 3);
  ASSERT_TRUE(task.Abort(absl::CancelledError("by the client")));
  EXPECT_EQ(owner.use_count(), 2) << "b is what the queue sorts it by";
}

TEST(TaskTest, CannotBeAbortedWhileItRuns) {
  Ending ending;
  Task task(TaskSpec{}, ending.For());
  ASSERT_TRUE(task.Start());
  EXPECT_FALSE(task.Abort(absl::CancelledError("late")));
  EXPECT_EQ(ending.times, 0);
  task.Finish(absl::OkStatus(), {}, 0, 1);
  EXPECT_EQ(ending.times, 1);
}

TEST(TaskDeathTest, FinishNeedsAStartAndHappensOnce) {
  Ending ending;
  Task task(TaskSpec{}, ending.For());
  EXPECT_DEATH(task.Finish(absl::OkStatus(), {}, 0, 1), "does not run");
  ASSERT_TRUE(task.Start());
  task.Finish(absl::OkStatus(), {}, 0, 1);
  EXPECT_DEATH(task.Finish(absl::OkStatus(), {}, 0, 1), "does not run");
}

TEST(TaskTest, AbandonedItEndsAtOnceAndKeepsItsMemoryUntilTheDevice) {
  FakePool pool;
  Ending ending;
  Task task(SpecWithBuffers(pool), ending.For());
  EXPECT_FALSE(task.Abandon(absl::InternalError("it does not run yet")));
  ASSERT_TRUE(task.Start());
  EXPECT_TRUE(task.Abandon(absl::InternalError("stuck")));
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ending.result.status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(pool.used_bytes(), 128u) << "the device may still write to it";
  EXPECT_FALSE(task.Abandon(absl::InternalError("twice")));
  EXPECT_FALSE(task.Abort(absl::CancelledError("late")));
  task.Finish(absl::OkStatus(), {}, 0, 1);
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(TaskTest, EndsWithInternalWhenItIsForgotten) {
  FakePool pool;
  Ending queued;
  Ending running;
  { Task task(SpecWithBuffers(pool), queued.For()); }
  {
    Task task(SpecWithBuffers(pool), running.For());
    ASSERT_TRUE(task.Start());
  }
  for (const Ending* ending : {&queued, &running}) {
    EXPECT_EQ(ending->times, 1);
    EXPECT_EQ(ending->result.status.code(), absl::StatusCode::kInternal);
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
}

// I1 for one task: whatever races, one end.
TEST(TaskTest, RacingAbortAndFinishEndItOnce) {
  for (int round = 0; round < 300; ++round) {
    FakePool pool;
    Ending ending;
    Task task(SpecWithBuffers(pool), ending.For());
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      while (!go) {
      }
      if (task.Start()) task.Finish(absl::OkStatus(), {}, 0, 1);
    });
    threads.emplace_back([&] {
      while (!go) {
      }
      task.Abort(absl::CancelledError("race"));
    });
    go = true;
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(ending.times, 1);
    ending.result.output.Reset();
    ASSERT_EQ(pool.used_bytes(), 0u);
  }
}

}  // namespace
}  // namespace gemmd
