// Defects that public kernels had, each as a test over every kernel.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sgemm.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class RegressionTest : public KernelTest {};

// A loop that assumes that warps divide a tile of 256 rows (a kernel for
// k = 10 with 8-deep tiles).
TEST_P(RegressionTest, WholeTilesWithAPartOfK) { Expect({256, 256, 10}); }

// A double buffer without the barrier between the first store and its reads.
TEST_P(RegressionTest, FirstTileIsReadAfterItsBarrier) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(Expect({384, 256, 8}));
  }
}

TEST_P(RegressionTest, TinyWithADeepOddK) { Expect({3, 3, 431}); }

// A grid rounded down: the last 8 rows and columns were not computed.
TEST_P(RegressionTest, GridIsRoundedUp) { Expect({1000, 1000, 32}); }

// n taken for k as the leading dimension of A.
TEST_P(RegressionTest, NotSquare) { Expect({256, 128, 64}); }

// 16-byte loads of rows that are not multiples of 16 bytes.
TEST_P(RegressionTest, RowsOfOddLength) {
  Expect({2, 4, 3});
  Expect({33, 33, 33});
}

TEST_P(RegressionTest, BetaZeroNeverReadsC) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    Problem problem({70, 50, 30}, {}, random_);
    for (int64_t i = 0; i < 70 * 50; ++i) problem.c().data()[i] = value;
    ASSERT_NO_FATAL_FAILURE(Expect(problem));
  }
}

TEST_P(RegressionTest, AlphaZeroNeverReadsAOrB) {
  for (const float beta : kScalars) {
    for (const int64_t n : {5, 33, 128}) {
      Problem problem({n, n, n}, {.alpha = 0.0f, .beta = beta}, random_);
      problem.PoisonOperands();
      ASSERT_NO_FATAL_FAILURE(Expect(problem));
      ASSERT_NO_FATAL_FAILURE(
          Expect(problem, [](SgemmArgs& args) { args.a = args.b = nullptr; }));
    }
  }
}

TEST_P(RegressionTest, KZeroGivesBetaC) {
  for (const float beta : kScalars) {
    for (const auto [ta, tb] : kTransposes) {
      Problem problem({129, 63, 0, ta, tb},
                      {.alpha = 1.7f, .beta = beta, .padding_c = 3}, random_);
      ASSERT_NO_FATAL_FAILURE(
          Expect(problem, [](SgemmArgs& args) { args.a = args.b = nullptr; }));
    }
  }
}

// The leading dimension of B or C taken for n.
TEST_P(RegressionTest, LeadingDimensionsOfBAndC) {
  Expect({256, 256, 64}, {.beta = 1.0f, .padding_b = 128, .padding_c = 64});
}

// One request alone and among others.
TEST_P(RegressionTest, SameRowsAloneAndInABatch) {
  if (!kernel_->info().batch_invariant) GTEST_SKIP() << "not batch invariant";
  std::vector<Problem> problems;
  for (const int64_t rows : {1, 4, 16, 1, 100}) {
    problems.emplace_back(GemmShape{rows, 256, 256}, ProblemOptions{}, random_);
  }
  ExpectBitsOfSingleRuns(problems);
}

// Streams that shared a handle's workspace gave different bits.
TEST_P(RegressionTest, ConcurrentRunsGiveTheSameBits) {
  Problem problem({193, 130, 700}, {}, random_);
  const Operand alone = RunAlone(problem);
  std::array<bool, 4> same{};
  std::vector<std::jthread> threads;
  for (bool& ok : same) {
    threads.emplace_back([&] {
      ok = true;
      for (int i = 0; i < 8; ++i) {
        auto result = RunKernel(*kernel_, {{&problem}});
        ok = ok && result.ok() && SameBits(result->front(), alone);
      }
    });
  }
  threads.clear();
  EXPECT_THAT(same, testing::Each(true));
}

// An FP32 interface that ran on TF32, which keeps 10 bits of 1 + 2^-20.
TEST_P(RegressionTest, NeverTf32) {
  if (kernel_->info().precision == Precision::kTf32) {
    GTEST_SKIP() << kernel_->info().name << " is TF32 by name";
  }
  for (const int64_t n : {4, 128, 512}) {
    Problem problem({n, n, 1}, {}, random_);
    const float value = 1.0f + std::ldexp(1.0f, -20);
    for (int64_t i = 0; i < n; ++i) {
      problem.a().data()[i] = value;
      problem.b().data()[i] = 1.0f;
    }
    ASSERT_NO_FATAL_FAILURE(Expect(problem));
    EXPECT_EQ(RunAlone(problem).data()[n * n - 1], value);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RegressionTest,
                         testing::ValuesIn(KernelNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
