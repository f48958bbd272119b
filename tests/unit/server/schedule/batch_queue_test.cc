#include "server/schedule/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "proto/error_details.h"
#include "tests/unit/server/schedule/batch_queue_model.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const MonotonicTime kStart{std::chrono::seconds(1000)};

MonotonicTime At(int ms) { return kStart + milliseconds(ms); }

class BatchQueueTest : public ::testing::Test {
 protected:
  struct Wish {
    int64_t size = 8;
    Priority priority = Priority::kInteractive;
    MonotonicTime deadline = kNever;
    size_t bytes = 100;
    const SgemmKernel* kernel = nullptr;
    std::string client = "";
    int device = kAnyDevice;
    std::shared_ptr<const StoredMatrix> b = nullptr;
    int64_t rows = 0;  // 0: size
  };

  std::shared_ptr<Task> Make(const Wish& wish) {
    TaskSpec spec;
    spec.shape = {wish.rows > 0 ? wish.rows : wish.size, wish.size, wish.size};
    spec.client = wish.client;
    spec.device = wish.device;
    spec.b.resident = wish.b;
    spec.kernel = wish.kernel != nullptr ? wish.kernel : &kernel_;
    spec.priority = wish.priority;
    spec.deadline = wish.deadline;
    spec.input = *pool_.Allocate(wish.bytes);
    return std::make_shared<Task>(std::move(spec), [](TaskResult) {});
  }

  // Pushes and remembers a task, to name it by its number later.
  absl::Status Push(BatchQueue& queue, const Wish& wish, int ms = 0) {
    std::shared_ptr<Task> task = Make(wish);
    absl::Status status = queue.Push(task, At(ms));
    if (status.ok()) tasks_.push_back(task);
    return status;
  }

  // The numbers of a batch's tasks in order of Push.
  std::vector<int> Numbers(const std::vector<std::shared_ptr<Task>>& tasks) {
    std::vector<int> numbers;
    for (const auto& task : tasks) {
      numbers.push_back(static_cast<int>(
          std::find(tasks_.begin(), tasks_.end(), task) - tasks_.begin()));
    }
    return numbers;
  }
  std::vector<int> Popped(BatchQueue& queue, int ms, int device = 0) {
    return Numbers(queue.Pop(device, At(ms)).tasks);
  }

  FakePool pool_;
  FakeKernel kernel_{"one"};
  FakeKernel other_kernel_{"two"};
  std::vector<std::shared_ptr<Task>> tasks_;
};

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

// Fairness.

TEST_F(BatchQueueTest, ABatchTakesOneOfEachClientInTurn) {
  BatchQueue queue({.max_batch_requests = 4});
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(Push(queue, {.client = "a"}).ok());
  ASSERT_TRUE(Push(queue, {.client = "b"}).ok());
  ASSERT_TRUE(Push(queue, {.client = "c"}).ok());
  ASSERT_TRUE(Push(queue, {.client = "c"}).ok());
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0, 6, 7, 1));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(8, 2, 3, 4));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(5));
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

// Rows against one resident B, which are held while more are at the door.
class HeldRows : public BatchQueueTest {
 protected:
  Wish Row(const std::string& client = "a") const {
    return {.kernel = &rows_, .client = client, .b = b_, .rows = 1};
  }
  void PushHeld(BatchQueue& queue, const Wish& wish, int ms = 0) {
    tasks_.push_back(Make(wish));
    ASSERT_TRUE(queue.Push(tasks_.back(), At(ms), /*hold=*/true).ok());
  }

  const FakeKernel rows_{"rows", Fusion::kSameB};
  const std::shared_ptr<const StoredMatrix> b_ =
      std::make_shared<StoredMatrix>(8, 8, std::make_unique<HostMemory>(256));
};

TEST_F(HeldRows, GoTogetherWhenNoMoreAreAtTheDoor) {
  BatchQueue queue({.max_hold = milliseconds(5)});
  for (const char* const client : {"a", "b", "a", "c"}) {
    PushHeld(queue, Row(client));
    EXPECT_THAT(Popped(queue, 0), IsEmpty());
  }
  EXPECT_EQ(queue.NextDue(0), At(5));
  EXPECT_TRUE(queue.Release());
  EXPECT_LE(queue.NextDue(0), At(0));
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0, 1, 3, 2));
  EXPECT_FALSE(queue.Release());
  PushHeld(queue, Row());  // a release is of what was there
  EXPECT_THAT(Popped(queue, 0), IsEmpty());
}

TEST_F(HeldRows, AreHeldNoLongerThanTheLimitThoughMoreComeAndCome) {
  BatchQueue queue({.max_hold = milliseconds(5)});
  for (int ms = 0; ms < 5; ++ms) {
    PushHeld(queue, Row(), ms);
    EXPECT_THAT(Popped(queue, ms), IsEmpty());
  }
  EXPECT_THAT(Popped(queue, 5), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(HeldRows, AreNotHeldOnceTheyFillABatch) {
  BatchQueue queue({.max_batch_requests = 2, .max_hold = milliseconds(5)});
  PushHeld(queue, Row());
  PushHeld(queue, Row());
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0, 1));
}

TEST_F(HeldRows, NothingElseIsHeld) {
  BatchQueue queue({.max_hold = milliseconds(5)});
  const FakeKernel equal("equal", Fusion::kEqualShapes);
  PushHeld(queue, {.kernel = &equal});
  EXPECT_THAT(Popped(queue, 0), ElementsAre(0));
  PushHeld(queue, {.kernel = &kernel_, .b = b_});
  EXPECT_THAT(Popped(queue, 0), ElementsAre(1));
  EXPECT_FALSE(queue.Release());
  BatchQueue eager({.max_hold = milliseconds(0)});
  PushHeld(eager, Row());
  EXPECT_THAT(Popped(eager, 0), ElementsAre(2));
  BatchQueue delayed({.max_queue_delay = milliseconds(3)});
  PushHeld(delayed, Row());  // as long as the operator wants
  EXPECT_FALSE(delayed.Release());
  EXPECT_EQ(delayed.NextDue(0), At(3));
}

// The case: ten thousand of one client do not delay another's first.
TEST_F(BatchQueueTest, AnotherClientsFirstIsInOneOfTheNextTwoBatches) {
  for (const int64_t size : {8, 9}) {  // of the same shape, and of another
    BatchQueue queue({});
    tasks_.clear();
    for (int i = 0; i < 10'000; ++i) {
      ASSERT_TRUE(Push(queue, {.size = 8, .client = "many"}).ok());
    }
    for (int i = 0; i < 5; ++i) queue.Pop(0, At(0));
    ASSERT_TRUE(Push(queue, {.size = size, .client = "one"}).ok());
    std::vector<std::shared_ptr<Task>> two = queue.Pop(0, At(0)).tasks;
    for (auto& task : queue.Pop(0, At(0)).tasks) two.push_back(task);
    EXPECT_THAT(Numbers(two), ::testing::Contains(10'000));
  }
}

// With N other clients that wait, however much each has, a client's first task
// is in one of the next N + 1 batches.
TEST_F(BatchQueueTest, TheWorstWaitIsOneBatchOfEachOtherClient) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    BatchQueue queue(
        {.max_batch_requests = 1 + static_cast<int>(random() % 4)});
    tasks_.clear();
    const int clients = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(Push(queue, {.size = static_cast<int64_t>(random() % 50),
                               .bytes = random() % 5000,
                               .client = std::to_string(random() % clients)})
                      .ok());
      if (random() % 3 == 0) queue.Pop(0, At(0));
    }
    const size_t newcomer = tasks_.size();
    ASSERT_TRUE(Push(queue, {.size = 60, .client = "newcomer"}).ok());
    int batches = 0;
    while (true) {
      ++batches;
      const Batch batch = queue.Pop(0, At(0));
      ASSERT_FALSE(batch.tasks.empty());
      if (batch.tasks[0] == tasks_[newcomer]) break;
    }
    ASSERT_LE(batches, clients + 1);
  }
}

// One step of a history: what happens, then both policies are asked.
enum class Step {
  kPushA,
  kPushB,
  kPushOtherShape,
  kPushBulk,
  kPushBound,
  kPop0,
  kPop1,
  kWait
};
constexpr int kSteps = 8;

class BatchQueueAgainstModel : public BatchQueueTest {
 protected:
  std::shared_ptr<Task> MakeFor(Step step) {
    Wish wish{.bytes = 0, .client = "a"};
    if (step == Step::kPushB) wish.client = "b";
    if (step == Step::kPushOtherShape) wish.size = 9;
    if (step == Step::kPushBulk) wish.priority = Priority::kBulk;
    if (step == Step::kPushBound) wish.device = 1;
    return Make(wish);
  }

  // Runs a history against queue and model; false at the first difference.
  bool Agree(const BatchQueueOptions& options, std::span<const Step> history) {
    BatchQueue queue(options, 2);
    BatchQueueModel model(options, 2);
    int ms = 0;
    for (const Step step : history) {
      if (step == Step::kWait) {
        ++ms;
      } else if (step == Step::kPop0 || step == Step::kPop1) {
        const int device = step == Step::kPop1;
        std::vector<Task*> got;
        for (const auto& task : queue.Pop(device, At(ms)).tasks) {
          got.push_back(task.get());
        }
        if (got != model.Pop(device, At(ms))) return false;
        if (got.empty() && queue.NextDue(device) <= At(ms)) return false;
      } else {
        std::shared_ptr<Task> task = MakeFor(step);
        if (!queue.Push(task, At(ms)).ok()) return false;
        model.Push(task, At(ms));
      }
      if (queue.requests() != static_cast<int>(model.size())) return false;
    }
    return true;
  }
};

// A sanitizer looks for races and bad memory, which show in fewer histories,
// and makes each ten times slower.
#ifdef GEMMD_SANITIZED
constexpr int kLength = 4;
constexpr int kRounds = 30;
#else
constexpr int kLength = 6;
constexpr int kRounds = 300;
#endif

// Every history of up to kLength steps, with and without a delay.
TEST_F(BatchQueueAgainstModel, AgreesOnEveryShortHistory) {
  int histories = 1;
  for (int i = 0; i < kLength; ++i) histories *= kSteps;
  for (const int delay_ms : {0, 2}) {
    const BatchQueueOptions options{.max_batch_requests = 2,
                                    .max_queue_delay = milliseconds(delay_ms)};
    for (int number = 0; number < histories; ++number) {
      std::vector<Step> history;
      for (int rest = number, i = 0; i < kLength; ++i, rest /= kSteps) {
        history.push_back(static_cast<Step>(rest % kSteps));
      }
      ASSERT_TRUE(Agree(options, history))
          << "history " << number << ", delay " << delay_ms << " ms";
    }
  }
}

// Long random histories with clients, devices, cancellations, deadlines, sizes
// and every limit.
TEST_F(BatchQueueAgainstModel, AgreesOnLongRandomHistories) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  const FakeKernel table("table", Fusion::kAnyShapes);
  const FakeKernel rows("rows", Fusion::kSameB);
  const auto resident = std::make_shared<const StoredMatrix>(
      8, 8, std::make_unique<HostMemory>(256));
  for (int round = 0; round < kRounds; ++round) {
    const BatchQueueOptions options{
        .max_batch_requests = 1 + below(5),
        .max_batch_bytes = size_t(100 + below(500)),
        .max_batch_flops = 2000.0 + below(5000),
        .max_mixed_flops = 1200,
        .max_queue_delay = milliseconds(below(2) * below(6)),
        .max_hold = milliseconds(below(8))};
    constexpr int kDevices = 2;
    BatchQueue queue(options, kDevices);
    BatchQueueModel model(options, kDevices);
    std::vector<std::shared_ptr<Task>> alive;
    const int clients = 1 + below(4);
    int ms = 0;
    for (int step = 0; step < 300; ++step) {
      const int dice = below(10);
      if (dice < 5) {
        const MonotonicTime deadline =
            below(3) == 0 ? At(ms + 1 + below(20)) : kNever;
        const bool row = below(3) == 0;
        const bool hold = below(2) == 0;
        std::shared_ptr<Task> task =
            Make({.size = 7 + below(3),
                  .priority =
                      below(3) == 0 ? Priority::kBulk : Priority::kInteractive,
                  .deadline = deadline,
                  .bytes = size_t(below(300)),
                  .kernel = row ? static_cast<const SgemmKernel*>(&rows)
                            : below(4) == 0 ? &table
                                            : &kernel_,
                  .client = std::to_string(below(clients)),
                  .device = below(3) == 0 ? below(kDevices) : kAnyDevice,
                  .b = row ? resident : nullptr});
        alive.push_back(task);
        const int passes_to = task->spec().device == kAnyDevice
                                  ? below(kDevices)
                                  : task->spec().device;
        if (!hold && queue.MayPass() && below(2) == 0) {
          const absl::StatusOr<Batch> batch =
              queue.Pass(task, passes_to, At(ms));
          ASSERT_TRUE(batch.ok());
          ASSERT_THAT(batch->tasks, ElementsAre(task));
          model.Push(task, At(ms));
          ASSERT_THAT(model.Pop(passes_to, At(ms)), ElementsAre(task.get()));
        } else {
          ASSERT_TRUE(queue.Push(task, At(ms), hold).ok());
          model.Push(task, At(ms), hold);
        }
      } else if (dice < 6 && !alive.empty()) {
        alive[below(static_cast<int>(alive.size()))]->Abort(
            absl::CancelledError(""));
      } else if (dice < 7) {
        ms += below(4);
        if (below(3) == 0) {
          queue.Release();
          model.Release();
        }
      } else {
        std::vector<Task*> expired;
        for (const auto& task : queue.TakeExpired(At(ms))) {
          expired.push_back(task.get());
        }
        ASSERT_THAT(expired, ::testing::UnorderedElementsAreArray(
                                 model.TakeExpired(At(ms))));
        if (step > 250 && below(10) == 0) {
          queue.BeginDrain();
          model.BeginDrain();
        }
        const int device = below(kDevices);
        std::vector<Task*> got;
        size_t bytes = 0;
        for (const auto& task : queue.Pop(device, At(ms)).tasks) {
          got.push_back(task.get());
          bytes += task->bytes();
        }
        ASSERT_EQ(got, model.Pop(device, At(ms)));
        if (got.size() > 1) {
          ASSERT_LE(bytes, options.max_batch_bytes);
        }
        if (got.empty()) {
          ASSERT_GT(queue.NextDue(device), At(ms));
        }
      }
    }
    queue.TakeAll();
    ASSERT_EQ(queue.requests(), 0);
    ASSERT_EQ(queue.bytes(), 0u);
  }
}

}  // namespace
}  // namespace gemmd
