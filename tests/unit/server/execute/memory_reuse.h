// I7, for every backend: memory that one client's request leaves to another's
// holds the first one's numbers, and none of them is ever sent.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "server/execute/backend.h"
#include "tests/unit/server/execute/backend_problem.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {

// A finite number that no product of small ones gives.
constexpr uint32_t kSecret = 0x7badcafe;

inline void FillWithSecret(StagingBuffer& buffer) {
  auto* const words = reinterpret_cast<uint32_t*>(buffer.data());
  std::fill(words, words + buffer.size() / 4, kSecret);
}

inline int64_t CountSecrets(const StagingBuffer& buffer) {
  const auto* const words = reinterpret_cast<const uint32_t*>(buffer.data());
  return std::count(words, words + buffer.size() / 4, kSecret);
}

// Leaves secrets all over the staging and device memory that is given out next.
inline void LeaveSecrets(StagingPool& pool, const SgemmKernel& kernel,
                         std::mt19937& random,
                         const std::function<BatchReport(Batch)>& run) {
  std::vector<Ending> endings(4);
  Batch batch;
  batch.kernel = &kernel;
  for (Ending& ending : endings) {
    // alpha 0 and beta 1: C goes to the device and comes back as it is.
    BackendProblem problem(pool, kernel, {64, 64, 64}, 0, 1, random);
    FillWithSecret(problem.spec().input);
    FillWithSecret(problem.spec().output);
    batch.tasks.push_back(problem.MakeTask(ending.For()));
  }
  run(std::move(batch));
  for (Ending& ending : endings) {
    ASSERT_TRUE(ending.result.status.ok()) << ending.result.status;
    ASSERT_EQ(CountSecrets(ending.result.output), 64 * 64);
    ending.result.output.Reset();
  }
}

// `first` runs a client's products, then `second` another's on its memory.
// Looks at every byte that the other is sent.
inline void ExpectNothingOfOthersIsSent(
    StagingPool& pool, const SgemmKernel& first, const SgemmKernel& second,
    std::mt19937& random, const std::function<BatchReport(Batch)>& run) {
  struct Case {
    GemmShape shape;
    float alpha;
    float beta;
  };
  for (const Case& c : {Case{{64, 64, 64}, 1, 0}, Case{{37, 21, 55}, 1, 0},
                        Case{{37, 21, 55, true, true}, -1.5f, 0},
                        Case{{37, 21, 55}, 0, 0}, Case{{5, 7, 0}, 1, 0},
                        Case{{37, 21, 0}, 1, 0.5f}, Case{{1, 1, 1}, 1, 0},
                        Case{{3, 3, 431}, 1, 0}, Case{{1, 63, 9}, 1, 1}}) {
    SCOPED_TRACE(testing::Message()
                 << second.info().name << ' ' << c.shape.m << " x " << c.shape.n
                 << " x " << c.shape.k << ", alpha " << c.alpha << ", beta "
                 << c.beta);
    ASSERT_NO_FATAL_FAILURE(LeaveSecrets(pool, first, random, run));
    BackendProblem problem(pool, second, c.shape, c.alpha, c.beta, random);
    StagingBuffer& output = problem.spec().output;
    if (c.beta == 0) {  // where C is not the client's own, it is as it was left
      output = *pool.Allocate(output.size());
      ASSERT_GT(CountSecrets(output), 0) << "the memory is not another's";
    }
    Ending ending;
    Batch batch;
    batch.kernel = &second;
    batch.tasks.push_back(problem.MakeTask(ending.For()));
    run(std::move(batch));
    if (ending.result.status.ok()) {
      EXPECT_EQ(ending.result.output.size(), c.shape.m * c.shape.n * 4u);
      EXPECT_EQ(CountSecrets(ending.result.output), 0);
      EXPECT_LE(problem.Error(ending.result.output), 1);
    } else {
      EXPECT_EQ(ending.result.output.size(), 0u);
    }
    ending.result.output.Reset();
  }
}

}  // namespace gemmd
