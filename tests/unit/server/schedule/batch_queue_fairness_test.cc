// Clients take turns, however much each of them has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/server/schedule/batch_queue_fixture.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace gemmd
