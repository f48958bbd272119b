#include "server/schedule/batch_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
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
  };

  std::shared_ptr<Task> Make(const Wish& wish) {
    TaskSpec spec;
    spec.shape = {wish.size, wish.size, wish.size};
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
  std::vector<int> Popped(BatchQueue& queue, int ms, bool draining = false) {
    return Numbers(queue.Pop(At(ms), draining).tasks);
  }

  FakePool pool_;
  FakeKernel kernel_{"one"};
  FakeKernel other_kernel_{"two"};
  std::vector<std::shared_ptr<Task>> tasks_;
};

TEST_F(BatchQueueTest, IsEmptyWhenMade) {
  BatchQueue queue({});
  EXPECT_THAT(Popped(queue, 0), IsEmpty());
  EXPECT_EQ(queue.NextEvent(true), kNever);
  EXPECT_EQ(queue.requests(), 0);
}

TEST_F(BatchQueueTest, WithoutADelayWhatWaitsGoesAtOnceAndTogether) {
  BatchQueue queue({});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_LE(queue.NextEvent(true), At(0));
  EXPECT_EQ(queue.NextEvent(false), kNever);
  Batch batch = queue.Pop(At(0), false);
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
  EXPECT_EQ(queue.Pop(At(0), false).tasks.at(0), transposed);
  EXPECT_THAT(Popped(queue, 0), IsEmpty());
}

TEST_F(BatchQueueTest, KeepsToEachLimitOfABatch) {
  {
    BatchQueue queue({.max_batch_requests = 2});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {}).ok());
    Batch batch = queue.Pop(At(0), false);
    EXPECT_EQ(batch.tasks.size(), 2u);
    EXPECT_EQ(batch.reason, FlushReason::kFull);
    EXPECT_EQ(queue.Pop(At(0), false).reason, FlushReason::kIdle);
  }
  {
    BatchQueue queue({.max_batch_bytes = 250});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {.bytes = 100}).ok());
    EXPECT_EQ(queue.Pop(At(0), false).tasks.size(), 2u);
    EXPECT_EQ(queue.Pop(At(0), false).tasks.size(), 1u);
  }
  {
    BatchQueue queue({.max_batch_flops = 2.5 * 2 * 8 * 8 * 8});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(queue, {.size = 8}).ok());
    EXPECT_EQ(queue.Pop(At(0), false).tasks.size(), 2u);
    EXPECT_EQ(queue.Pop(At(0), false).tasks.size(), 1u);
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
  EXPECT_EQ(queue.NextEvent(true), At(10));
  EXPECT_EQ(queue.NextEvent(false), kNever);
  Batch batch = queue.Pop(At(10), false);
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0, 1));
  EXPECT_EQ(batch.reason, FlushReason::kTimer);
}

TEST_F(BatchQueueTest, AFullBatchDoesNotWait) {
  BatchQueue queue(
      {.max_batch_requests = 2, .max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Push(queue, {.size = 9}, 0).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}, 0).ok());
  ASSERT_TRUE(Push(queue, {.size = 8}, 1).ok());
  EXPECT_LE(queue.NextEvent(true), At(1));
  Batch batch = queue.Pop(At(1), false);
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(1, 2));
  EXPECT_EQ(batch.reason, FlushReason::kFull);
  EXPECT_THAT(Popped(queue, 1), IsEmpty());
  EXPECT_EQ(queue.NextEvent(true), At(10));
}

TEST_F(BatchQueueTest, DrainingDoesNotWait) {
  BatchQueue queue({.max_queue_delay = milliseconds(10)});
  ASSERT_TRUE(Push(queue, {}, 0).ok());
  Batch batch = queue.Pop(At(0), /*draining=*/true);
  EXPECT_THAT(Numbers(batch.tasks), ElementsAre(0));
  EXPECT_EQ(batch.reason, FlushReason::kDrain);
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
      Batch batch = queue.Pop(At(0), false);
      ASSERT_EQ(batch.tasks.size(), 1u);
      if (batch.tasks[0] == tasks_[0]) break;
      ++passes;
    }
    EXPECT_EQ(passes, BatchQueue::kMaxBulkPasses);
    while (!queue.Pop(At(0), false).tasks.empty()) {
    }
  }
}

TEST_F(BatchQueueTest, ReturnsResourceExhaustedWhenFull) {
  BatchQueue queue({.max_requests = 2, .max_bytes = 250});
  ASSERT_TRUE(Push(queue, {.bytes = 200}).ok());
  const absl::Status bytes = Push(queue, {.bytes = 51});
  EXPECT_EQ(bytes.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(bytes).has_value());
  EXPECT_THAT(std::string(bytes.message()),
              ::testing::HasSubstr("--queue-max-bytes"));
  ASSERT_TRUE(Push(queue, {.bytes = 50}).ok());
  const absl::Status requests = Push(queue, {.bytes = 0});
  EXPECT_EQ(requests.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(requests).has_value());
  EXPECT_THAT(std::string(requests.message()),
              ::testing::HasSubstr("--queue-max-requests"));
  EXPECT_EQ(queue.requests(), 2);
  EXPECT_EQ(queue.bytes(), 250u);
}

TEST_F(BatchQueueTest, RefusesForGoodWhatIsOverTheWholeQueue) {
  BatchQueue queue({.max_bytes = 250});
  const absl::Status status = Push(queue, {.bytes = 251});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(RetryDelay(status).has_value());
}

TEST_F(BatchQueueTest, TasksThatHaveEndedMakeRoomWhenItIsNeeded) {
  BatchQueue queue({.max_requests = 2});
  ASSERT_TRUE(Push(queue, {}).ok());
  ASSERT_TRUE(Push(queue, {}).ok());
  ASSERT_TRUE(tasks_[0]->Abort(absl::CancelledError("")));
  ASSERT_TRUE(Push(queue, {}, 5).ok());
  EXPECT_THAT(Popped(queue, 5), ElementsAre(1, 2));
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
  EXPECT_EQ(queue.NextEvent(/*stream_free=*/false), At(10));
  EXPECT_THAT(Numbers(queue.TakeExpired(At(9))), IsEmpty());
  EXPECT_THAT(Numbers(queue.TakeExpired(At(20))), ElementsAre(1, 2));
  EXPECT_EQ(queue.NextEvent(false), At(30));
  EXPECT_THAT(Popped(queue, 20), ElementsAre(0, 3));
}

TEST_F(BatchQueueTest, PopLeavesLateTasksToTakeExpired) {
  BatchQueue queue({});
  ASSERT_TRUE(Push(queue, {.deadline = At(10)}).ok());
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_THAT(Popped(queue, 10), ElementsAre(1));
  EXPECT_THAT(Popped(queue, 10), IsEmpty());
  EXPECT_THAT(Numbers(queue.TakeExpired(At(10))), ElementsAre(0));
  EXPECT_EQ(queue.requests(), 0);
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
  EXPECT_EQ(queue.NextEvent(true), kNever);
  ASSERT_TRUE(Push(queue, {}).ok());
  EXPECT_EQ(queue.Pop(At(0), false).tasks.size(), 1u);
}

// One step of a history: what happens, then both policies are asked.
enum class Step { kPushA, kPushB, kPushBulkA, kPop, kPopDraining, kWait };
constexpr int kSteps = 6;

class BatchQueueAgainstModel : public BatchQueueTest {
 protected:
  // Runs a history against queue and model; false at the first difference.
  bool Agree(const BatchQueueOptions& options, std::span<const Step> history) {
    BatchQueue queue(options);
    BatchQueueModel model(options);
    int ms = 0;
    for (const Step step : history) {
      switch (step) {
        case Step::kPushA:
        case Step::kPushB:
        case Step::kPushBulkA: {
          std::shared_ptr<Task> task = Make(
              {.size = step == Step::kPushB ? 9 : 8,
               .priority = step == Step::kPushBulkA ? Priority::kBulk
                                                    : Priority::kInteractive,
               .bytes = 0});
          if (!queue.Push(task, At(ms)).ok()) return false;
          model.Push(task, At(ms));
          break;
        }
        case Step::kPop:
        case Step::kPopDraining: {
          const bool draining = step == Step::kPopDraining;
          std::vector<Task*> got;
          for (const auto& task : queue.Pop(At(ms), draining).tasks) {
            got.push_back(task.get());
          }
          if (got != model.Pop(At(ms), draining)) return false;
          if (got.empty() && queue.NextEvent(true) <= At(ms)) return false;
          break;
        }
        case Step::kWait:
          ++ms;
      }
      if (queue.requests() != static_cast<int>(model.size())) return false;
    }
    return true;
  }
};

// Every history of up to 7 steps, with and without a delay.
TEST_F(BatchQueueAgainstModel, AgreesOnEveryShortHistory) {
  constexpr int kLength = 7;
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

// Long random histories with cancellations, deadlines, sizes and every limit.
TEST_F(BatchQueueAgainstModel, AgreesOnLongRandomHistories) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  for (int round = 0; round < 300; ++round) {
    const BatchQueueOptions options{
        .max_batch_requests = 1 + below(5),
        .max_batch_bytes = size_t(100 + below(500)),
        .max_batch_flops = 2000.0 + below(5000),
        .max_queue_delay = milliseconds(below(2) * below(6))};
    BatchQueue queue(options);
    BatchQueueModel model(options);
    std::vector<std::shared_ptr<Task>> alive;
    // With a delay, ended tasks that the queue has not met yet still count
    // towards a full batch, which the model does not follow.
    const bool cancel = options.max_queue_delay.count() == 0;
    int ms = 0;
    for (int step = 0; step < 300; ++step) {
      const int dice = below(10);
      if (dice < 5) {
        const MonotonicTime deadline =
            below(3) == 0 ? At(ms + 1 + below(20)) : kNever;
        std::shared_ptr<Task> task =
            Make({.size = 7 + below(3),
                  .priority =
                      below(3) == 0 ? Priority::kBulk : Priority::kInteractive,
                  .deadline = deadline,
                  .bytes = size_t(below(300)),
                  .kernel = below(4) == 0 ? &other_kernel_ : &kernel_});
        ASSERT_TRUE(queue.Push(task, At(ms)).ok());
        model.Push(task, At(ms));
        alive.push_back(task);
      } else if (dice < 6 && cancel && !alive.empty()) {
        alive[below(static_cast<int>(alive.size()))]->Abort(
            absl::CancelledError(""));
      } else if (dice < 7) {
        ms += below(4);
      } else {
        std::vector<Task*> expired;
        for (const auto& task : queue.TakeExpired(At(ms))) {
          expired.push_back(task.get());
        }
        ASSERT_THAT(expired, ::testing::UnorderedElementsAreArray(
                                 model.TakeExpired(At(ms))));
        const bool draining = below(10) == 0;
        std::vector<Task*> got;
        size_t bytes = 0;
        for (const auto& task : queue.Pop(At(ms), draining).tasks) {
          got.push_back(task.get());
          bytes += task->bytes();
        }
        ASSERT_EQ(got, model.Pop(At(ms), draining));
        if (got.size() > 1) {
          ASSERT_LE(bytes, options.max_batch_bytes);
        }
        if (got.empty()) {
          ASSERT_GT(queue.NextEvent(true), At(ms));
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
