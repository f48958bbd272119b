// Which products a CPU device computes on the thread that brings them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/execute/cpu/cpu_backend.h"
#include "server/execute/thread_load.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/unit/server/execute/cpu_fixture.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

class CpuSmallProductTest : public CpuFixture {
 protected:
  void SetUp() override {
    CpuFixture::SetUp();
    ASSERT_TRUE(device().Warm().ok());
  }

  struct Outcome {
    std::thread::id thread;  // where it ended
    double error = 0;        // of the worst
    std::vector<float> first;
  };

  // `times` products of one batch, the same numbers in each.
  Outcome Run(GemmShape shape, const char* name = "openblas", int times = 1) {
    Batch batch;
    batch.kernel = *registry_.Find(name);
    std::vector<BackendProblem> problems;
    std::vector<Ending> endings(times);
    const auto numbers = static_cast<unsigned>(random_());
    for (Ending& ending : endings) {
      std::mt19937 same(numbers);
      problems.emplace_back(backend_->staging(), *batch.kernel, shape, 1.0f,
                            0.0f, same);
      batch.tasks.push_back(problems.back().MakeTask(ending.For()));
    }
    Outcome outcome;
    std::latch done(1);
    device().Execute(std::move(batch), [&](const BatchReport& report) {
      EXPECT_EQ(report.tasks, times);
      outcome.thread = std::this_thread::get_id();
      done.count_down();
    });
    done.wait();
    for (int i = 0; i < times; ++i) {
      EXPECT_EQ(endings[i].times, 1);
      outcome.error =
          std::max(outcome.error, problems[i].Error(endings[i].result.output));
    }
    const StagingBuffer& output = endings[0].result.output;
    outcome.first.assign(output.floats(),
                         output.floats() + output.size() / sizeof(float));
    return outcome;
  }
};

TEST_F(CpuSmallProductTest, IsComputedWhereItIsGiven) {
  for (const GemmShape shape :
       {GemmShape{1, 1, 1}, GemmShape{64, 64, 64}, GemmShape{1, 100, 100}}) {
    const Outcome outcome = Run(shape);
    EXPECT_EQ(outcome.thread, std::this_thread::get_id())
        << shape.m << " " << shape.n << " " << shape.k;
    EXPECT_LE(outcome.error, 1);
  }
}

TEST_F(CpuSmallProductTest, OthersAreLeftToAWorker) {
  const auto here = std::this_thread::get_id();
  EXPECT_NE(Run({65, 64, 64}).thread, here) << "more work";
  EXPECT_NE(Run({1, 128, 128}).thread, here) << "more numbers";
  EXPECT_NE(Run({512, 512, 0}).thread, here) << "no work, many numbers";
  EXPECT_NE(Run({16, 16, 16}, "openblas", 2).thread, here) << "two of them";
  EXPECT_NE(Run({16, 16, 16}, "reference").thread, here) << "a slow kernel";
}

TEST_F(CpuSmallProductTest, IsLeftToAWorkerWhileTheCallerHasMoreToDo) {
  const auto here = std::this_thread::get_id();
  SetThreadHasMore(true);
  EXPECT_NE(Run({8, 8, 8}).thread, here);
  SetThreadHasMore(false);
  EXPECT_EQ(Run({8, 8, 8}).thread, here);
}

// What a batch's end starts is not computed there, or a line of small ones
// would nest as deep as it is long.
TEST_F(CpuSmallProductTest, DoesNotNest) {
  Batch batch;
  batch.kernel = *registry_.Find("openblas");
  BackendProblem problem(backend_->staging(), *batch.kernel, {8, 8, 8}, 1.0f,
                         0.0f, random_);
  Ending ending;
  batch.tasks.push_back(problem.MakeTask(ending.For()));
  bool is_here = false;
  device().Execute(std::move(batch), [&](const BatchReport&) {
    is_here = true;
    EXPECT_NE(Run({8, 8, 8}).thread, std::this_thread::get_id());
  });
  EXPECT_TRUE(is_here);
}

// I1: from many threads at once, those of the device among them.
TEST_F(CpuSmallProductTest, EndsOnceHoweverManyBringThem) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  const SgemmKernel& kernel = **registry_.Find("openblas");
  std::vector<BackendProblem> problems;
  std::vector<std::shared_ptr<Task>> tasks;
  std::vector<Ending> endings(kThreads * kEach);
  for (Ending& ending : endings) {
    const auto n = static_cast<int64_t>(1 + random_() % 80);  // some are larger
    problems.emplace_back(backend_->staging(), kernel, GemmShape{n, n, n}, 1.0f,
                          0.0f, random_);
    tasks.push_back(problems.back().MakeTask(ending.For()));
  }
  const auto scheduler =
      BatchScheduler::Create({}, backend_->devices(), nullptr);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kEach; ++i) {
          EXPECT_TRUE(scheduler->Submit(tasks[thread * kEach + i]).ok());
        }
      });
    }
  }
  EXPECT_TRUE(scheduler->Drain(kNever));
  EXPECT_EQ(scheduler->queued_requests(), 0);
  EXPECT_EQ(scheduler->outstanding(0), 0);
  for (size_t i = 0; i < endings.size(); ++i) {
    ASSERT_EQ(endings[i].times, 1);
    ASSERT_TRUE(endings[i].result.status.ok());
    EXPECT_LE(problems[i].Error(endings[i].result.output), 1);
  }
}

// I6: the thread that computes a product is not seen in it.
TEST_F(CpuSmallProductTest, HasTheSameBitsOnAWorker) {
  const unsigned numbers = random_();
  for (const GemmShape shape : {GemmShape{64, 64, 64}, GemmShape{3, 50, 77}}) {
    random_.seed(numbers);
    const Outcome here = Run(shape);
    random_.seed(numbers);
    const Outcome there = Run(shape, "openblas", 2);
    EXPECT_NE(here.thread, there.thread);
    ASSERT_EQ(here.first.size(), there.first.size());
    const void* const a = here.first.data();
    const void* const b = there.first.data();
    EXPECT_EQ(std::memcmp(a, b, here.first.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace gemmd
