// Batches: when they close, and what goes into one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "proto/error_details.h"
#include "tests/unit/server/schedule/batch_queue_fixture.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(BatchQueueTest, IsEmptyWhenMade) {
  BatchQueue queue({});
  EXPECT_THAT(Popped(queue, 0), IsEmpty());
  EXPECT_EQ(queue.NextDue(0), kNever);
  EXPECT_EQ(queue.requests(), 0);
}

TEST_F(BatchQueueTest, WithoutADelayWhatWaitsGoesAtOnceAndTogether) {
  BatchQueue queue({});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_LE(queue.NextDue(0), At(0));
  EXPECT_EQ(queue.NextDeadline(), kNever);
  Batch batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.reason, FlushReason::kIdle);
  EXPECT_EQ(batch.kernel, &kernel_);
  EXPECT_GT(batch.id, 0u);
  EXPECT_EQ(queue.requests(), 0);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST_F(BatchQueueTest, NeverMixesKernelsShapesOrTransposes) {
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.size = 8}).ok());
  ASSERT_TRUE(Push(queue, {.size = 9}).ok());
  ASSERT_TRUE(Push(queue, {.size = 8, .kernel = &other_kernel_}).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}).ok());
  std::shared_ptr<Task> transposed = Make({.size = 8});
  transposed->mutable_spec().shape.transpose_a = true;
  ASSERT_TRUE(queue.Push(transposed, At(0)).ok());
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0, 3));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(1));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(2));
  EXPECT_EQ(queue.Pop(0, At(0)).tasks.at(0), transposed);
  EXPECT_THAT(Popped(queue, 0), IsEmpty());
}

TEST_F(BatchQueueTest, KeepsToEachLimitOfABatch) {
  {
    BatchQueue queue({.max_batch_requests = 2});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {}).ok());
    Batch batch = queue.Pop(0, At(0));
    EXPECT_EQ(batch.tasks.size(), 2u);
    EXPECT_EQ(batch.reason, FlushReason::kFull);
    EXPECT_EQ(queue.Pop(0, At(0)).reason, FlushReason::kIdle);
  }
  {
    BatchQueue queue({.max_batch_bytes = 250});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {.bytes = 100}).ok());
    EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 2u);
    EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 1u);
  }
  {
    BatchQueue queue({.max_batch_flops = 2.5 * 2 * 8 * 8 * 8});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {.size = 8}).ok());
    EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 2u);
    EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 1u);
  }
}

TEST_F(BatchQueueTest, ATaskOverTheLimitsOfABatchRunsAlone) {
  BatchQueue queue({.max_batch_bytes = 250, .max_batch_flops = 1});
  ASSERT_TRUE(Push(queue, {.bytes = 300}).ok());
  ASSERT_TRUE(Push(queue, {.bytes = 300}).ok());
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(1));
}

TEST_F(BatchQueueTest, ADelayedBatchWaitsForItsFirstTaskAndNoLonger) {
  BatchQueue queue({.max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Push(queue, {}, 0).ok());
  ASSERT_TRUE(Push(queue, {}, 9).ok());
  EXPECT_THAT(Popped(queue, 9), IsEmpty());
  EXPECT_EQ(queue.NextDue(0), At(10));
  EXPECT_EQ(queue.NextDeadline(), kNever);
  Batch batch = queue.Pop(0, At(10));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 1));
  EXPECT_EQ(batch.reason, FlushReason::kTimer);
}

TEST_F(BatchQueueTest, AFullBatchDoesNotWait) {
  BatchQueue queue(
      {.max_batch_requests = 2, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Push(queue, {.size = 9}, 0).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}, 0).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}, 1).ok());
  EXPECT_LE(queue.NextDue(0), At(1));
  Batch batch = queue.Pop(0, At(1));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(1, 2));
  EXPECT_EQ(batch.reason, FlushReason::kFull);
  EXPECT_THAT(Popped(queue, 1), IsEmpty());
  EXPECT_EQ(queue.NextDue(0), At(10));
}

TEST_F(BatchQueueTest, DrainingDoesNotWait) {
  BatchQueue queue({.max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Push(queue, {}, 0).ok());
  queue.BeginDrain();
  Batch batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0));
  EXPECT_EQ(batch.reason, FlushReason::kDrain);
  ASSERT_TRUE(Push(queue, {}, 1).ok());
  EXPECT_THAT(Popped(queue, 1), ElementsAre(1)) << "one that comes later";
}

TEST_F(BatchQueueTest, InteractiveGoesBeforeBulkAndTakesItsLikeAlong) {
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.size = 9, .priority = Priority::kBulk}).ok());
  ASSERT_TRUE(Push(queue, {.size = 8, .priority = Priority::kBulk}).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}).ok());
  EXPECT_THAT(Popped(queue, 0), ElementsAre(2, 1));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0));
}

TEST_F(BatchQueueTest, BulkIsPassedOverAtMostSoOften) {
  BatchQueue queue({.max_batch_requests = 1});
  for (int round = 0; round < 3; ++round) {
    tasks_.clear();
    ASSERT_TRUE(Push(queue, {.size = 9, .priority = Priority::kBulk}).ok());
    int passes = 0;
    while (true) {
      ASSERT_TRUE(Push(queue, {.size = 8}).ok());
      Batch batch = queue.Pop(0, At(0));
      ASSERT_EQ(batch.tasks.size(), 1u);
      if (batch.tasks[0] == tasks_[0]) break;
      ++passes;
    }
    EXPECT_EQ(passes, BatchQueue::kMaxBulkPasses);
    while (!queue.Pop(0, At(0)).tasks.empty()) {
    }
  }
}

TEST_F(BatchQueueTest, WhatHasEndedNeverOutnumbersTheRestForLong) {
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.size = 9, .deadline = At(1000)}).ok());
  for (int i = 0; i < 20'000; ++i) {
    tasks_.clear();
    ASSERT_TRUE(Push(queue, {.client = std::to_string(i % 7)}).ok());
    tasks_[0]->Abort(absl::CancelledError(""));
    ASSERT_LE(queue.requests(), 300);
  }
  EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 1u);
}

TEST_F(BatchQueueTest, RefusesATaskThatIsLate) {
  BatchQueue queue({});
  EXPECT_EQ(Push(queue, {.deadline = At(5)}, 5).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(queue.requests(), 0);
  EXPECT_TRUE(Push(queue, {.deadline = At(5)}, 4).ok());
}

TEST_F(BatchQueueTest, ExpiresTasksAtTheirDeadlineWhateverTheDeviceDoes) {
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.deadline = At(30)}).ok());
  ASSERT_TRUE(Push(queue, {.deadline = At(10)}).ok());
  ASSERT_TRUE(Push(queue, {.deadline = At(20)}).ok());
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_EQ(queue.NextDeadline(), At(10));
  EXPECT_THAT(Numbers(queue.TakeExpired(At(9))), IsEmpty());
  EXPECT_THAT(Numbers(queue.TakeExpired(At(20))), ElementsAre(1, 2));
  EXPECT_EQ(queue.NextDeadline(), At(30));
  EXPECT_THAT(Popped(queue, 20), ElementsAre(0, 3));
}

TEST_F(BatchQueueTest, DropsTasksThatHaveEnded) {
  BatchQueue queue({});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Push(queue, {.deadline = At(50)}).ok());
  }
  tasks_[0]->Abort(absl::CancelledError(""));
  tasks_[2]->Abort(absl::CancelledError(""));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(1));
  EXPECT_THAT(Numbers(queue.TakeExpired(At(60))), IsEmpty());
  EXPECT_EQ(queue.requests(), 0);
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST_F(BatchQueueTest, TakeAllEmptiesIt) {
  BatchQueue queue({.max_batch_requests = 1});
  ASSERT_TRUE(Push(queue, {.deadline = At(50)}).ok());
  ASSERT_TRUE(Push(queue, {.size = 9, .priority = Priority::kBulk}).ok());
  EXPECT_EQ(queue.TakeAll().size(), 2u);
  EXPECT_EQ(queue.requests(), 0);
  EXPECT_EQ(queue.bytes(), 0u);
  EXPECT_EQ(queue.NextDue(0), kNever);
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_EQ(queue.Pop(0, At(0)).tasks.size(), 1u);
}

// The three ways into one launch.

TEST_F(BatchQueueTest, EqualShapesAreOneLaunchWhereTheKernelSaysSo) {
  const FakeKernel batched("batched", Fusion::kEqualShapes);
  for (const SgemmKernel* kernel :
       {static_cast<const SgemmKernel*>(&kernel_),
        static_cast<const SgemmKernel*>(&batched)}) {
    BatchQueue queue({});
    tasks_.clear();
    for (const int64_t size : {8, 9, 8}) {
      ASSERT_TRUE(Push(queue, {.size = size, .kernel = kernel}).ok());
    }
    const Batch batch = queue.Pop(0, At(0));
    EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 2));
    EXPECT_EQ(batch.fused, kernel == &batched);
  }
}

TEST_F(BatchQueueTest, RowsOfOneResidentBAreOneLaunchWhateverTheirNumber) {
  const FakeKernel skinny("skinny", Fusion::kSameB);
  const auto matrix = [] {
    return std::make_shared<const StoredMatrix>(
        8, 8, std::make_unique<HostMemory>(8 * 8 * 4));
  };
  const auto b = matrix();
  const auto other = matrix();
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.kernel = &skinny, .b = b, .rows = 1}).ok());
  ASSERT_TRUE(Push(queue, {.kernel = &skinny, .b = other, .rows = 1}).ok());
  ASSERT_TRUE(Push(queue, {.kernel = &skinny, .b = b, .rows = 3}).ok());
  ASSERT_TRUE(Push(queue, {.kernel = &skinny, .rows = 1}).ok());
  ASSERT_TRUE(Push(queue, {.kernel = &skinny, .rows = 1}).ok());
  ASSERT_TRUE(Push(queue, {.kernel = &kernel_, .b = b, .rows = 1}).ok());
  Batch batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 2));
  EXPECT_TRUE(batch.fused);
  EXPECT_THAT(Popped(queue, 0), ElementsAre(1));
  batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(3, 4));
  EXPECT_FALSE(batch.fused) << "each brings a B of its own";
  EXPECT_THAT(Popped(queue, 0), ElementsAre(5));
}

TEST_F(BatchQueueTest, SmallProductsOfAnyShapeAreOneLaunch) {
  const FakeKernel table("table", Fusion::kAnyShapes);
  BatchQueue queue({.max_mixed_flops = 2.0 * 16 * 16 * 16});
  for (const int64_t size : {8, 9, 17, 16, 17, 18}) {
    ASSERT_TRUE(Push(queue, {.size = size, .kernel = &table}).ok());
  }
  Batch batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 1, 3));
  EXPECT_TRUE(batch.fused);
  batch = queue.Pop(0, At(0));
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(2, 4)) << "too large to mix";
  EXPECT_TRUE(batch.fused);
  EXPECT_THAT(Popped(queue, 0), ElementsAre(5));
}

TEST_F(BatchQueueTest, TheLimitOfFlopsCountsMixedShapesByTheirOwn) {
  const FakeKernel table("table", Fusion::kAnyShapes);
  BatchQueue queue({.max_batch_flops = 2.0 * (1000 + 8 + 8)});
  for (const int64_t size : {10, 2, 2, 2}) {
    ASSERT_TRUE(Push(queue, {.size = size, .kernel = &table}).ok());
  }
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(3));
}

// Devices.

TEST_F(BatchQueueTest, ATaskGoesToItsDeviceAlone) {
  BatchQueue queue({}, 3);
  ASSERT_TRUE(Push(queue, {.device = 1}).ok());
  ASSERT_TRUE(Push(queue, {.device = 2}).ok());
  ASSERT_TRUE(Push(queue, {.device = 1}).ok());
  EXPECT_THAT(Popped(queue, 0, 0), IsEmpty());
  EXPECT_EQ(queue.NextDue(0), kNever);
  EXPECT_EQ(queue.NextDue(2), kAlways);
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(0, 2));
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_THAT(Popped(queue, 0, 2), ElementsAre(1));
  EXPECT_THAT(Popped(queue, 0, 2), ElementsAre(3));
}

TEST_F(BatchQueueTest, OfWhatADeviceCanTakeTheOldestGoesFirst) {
  BatchQueue queue({}, 2);
  ASSERT_TRUE(Push(queue, {.device = 0}).ok());
  ASSERT_TRUE(Push(queue, {}).ok());
  ASSERT_TRUE(Push(queue, {.device = 1}).ok());
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(1));
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(2));
  EXPECT_THAT(Popped(queue, 0, 0), ElementsAre(0));
}

TEST_F(BatchQueueTest, BulkOfAnotherDeviceCountsForNothing) {
  BatchQueue queue({.max_batch_requests = 1}, 2);
  ASSERT_TRUE(Push(queue, {.priority = Priority::kBulk, .device = 1}).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Push(queue, {}).ok());
    EXPECT_THAT(Popped(queue, 0, 0), ElementsAre(i + 1));
  }
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(21));
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(0));
}

TEST_F(BatchQueueTest, TakesWhatOnlyALostDeviceCouldRun) {
  BatchQueue queue({}, 2);
  ASSERT_TRUE(Push(queue, {.device = 0}).ok());
  ASSERT_TRUE(Push(queue, {.client = "a", .device = 1}).ok());
  ASSERT_TRUE(Push(queue, {}).ok());
  ASSERT_TRUE(Push(queue, {.size = 9, .device = 1}).ok());
  EXPECT_THAT(Numbers(queue.TakeBoundTo(1)),
              ::testing::UnorderedElementsAre(1, 3));
  EXPECT_EQ(queue.requests(), 2);
  EXPECT_THAT(Popped(queue, 0, 1), ElementsAre(2));
}

TEST_F(BatchQueueTest, PassingIsPushingAndPoppingInOne) {
  const FakeKernel table("table", Fusion::kAnyShapes);
  for (const BatchQueueOptions& options :
       {BatchQueueOptions(), BatchQueueOptions{.max_batch_requests = 1},
        BatchQueueOptions{.max_batch_flops = 1}}) {
    BatchQueue one(options);
    BatchQueue two(options);
    for (const SgemmKernel* const kernel :
         {static_cast<const SgemmKernel*>(&table),
          static_cast<const SgemmKernel*>(&kernel_)}) {
      const auto task = Make({.kernel = kernel});
      ASSERT_TRUE(one.MayPass());
      const absl::StatusOr<Batch> passed = one.Pass(task, 0, At(0));
      ASSERT_TRUE(passed.ok());
      ASSERT_TRUE(two.Push(task, At(0)).ok());
      EXPECT_FALSE(two.MayPass());
      const Batch popped = two.Pop(0, At(0));
      EXPECT_EQ(passed->id, popped.id);
      EXPECT_EQ(passed->kernel, popped.kernel);
      EXPECT_EQ(passed->fused, popped.fused);
      EXPECT_EQ(passed->reason, popped.reason);
      EXPECT_EQ(passed->tasks, popped.tasks);
      EXPECT_EQ(one.requests(), 0);
      EXPECT_EQ(one.NextDue(0), two.NextDue(0));
    }
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      BatchQueue({}).Pass(Make({.deadline = At(0)}), 0, At(0)).status()));
  EXPECT_FALSE(BatchQueue({.max_queue_delay = milliseconds(1)}).MayPass());
}

}  // namespace
}  // namespace gemmd
