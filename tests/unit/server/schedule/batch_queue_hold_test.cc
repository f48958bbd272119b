// Rows against one resident B, which are held while more are at the door.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/unit/server/schedule/batch_queue_fixture.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace gemmd
