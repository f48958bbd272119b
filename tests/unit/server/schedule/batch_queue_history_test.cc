// Histories of a BatchQueue beside a model of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/server/schedule/batch_queue_fixture.h"
#include "tests/unit/server/schedule/batch_queue_model.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

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
