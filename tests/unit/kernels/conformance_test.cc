// What every kernel of the project must do.

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/sgemm.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class ConformanceTest : public KernelTest {};

TEST_P(ConformanceTest, ComputesEverySquareSize) {
  for (int64_t n = 1; n <= 136; ++n) {
    const auto [ta, tb] = kTransposes[n % kTransposes.size()];
    ASSERT_NO_FATAL_FAILURE(Expect({n, n, n, ta, tb}));
  }
}

TEST_P(ConformanceTest, ComputesSizesAroundTilesWithEveryTranspose) {
  for (const int64_t n : kSizes) {
    for (const auto [ta, tb] : kTransposes) {
      ASSERT_NO_FATAL_FAILURE(Expect({n, n, n, ta, tb}));
    }
  }
}

TEST_P(ConformanceTest, ComputesTallWideDeepAndThinShapes) {
  const std::vector<std::array<int64_t, 3>> shapes = {
      {1027, 3, 17}, {3, 1031, 5},  {5, 7, 2049}, {1, 300, 300}, {300, 1, 300},
      {1, 1, 1000},  {300, 300, 1}, {1, 1, 1},    {1, 513, 1},   {129, 1, 1},
      {2, 2, 4096},  {640, 8, 8},   {8, 640, 8},  {128, 256, 40}};
  for (const auto [m, n, k] : shapes) {
    for (const auto [ta, tb] : kTransposes) {
      ASSERT_NO_FATAL_FAILURE(
          Expect({m, n, k, ta, tb}, {.alpha = 1.7f, .beta = -1.0f}));
    }
  }
}

TEST_P(ConformanceTest, ComputesRandomShapesStridesAndOffsets) {
  for (int i = 0; i < 150; ++i) {
    ASSERT_NO_FATAL_FAILURE(Expect(RandomShape(), RandomOptions()));
  }
}

TEST_P(ConformanceTest, ComputesEveryAlphaAndBeta) {
  for (const GemmShape& shape :
       {GemmShape{65, 33, 17}, GemmShape{128, 128, 16}}) {
    for (const float alpha : kScalars) {
      for (const float beta : kScalars) {
        ASSERT_NO_FATAL_FAILURE(
            Expect(shape, {.alpha = alpha, .beta = beta, .padding_c = 4}));
      }
    }
  }
}

TEST_P(ConformanceTest, ComputesEveryLeadingDimensionAndOffset) {
  for (const auto [ta, tb] : kTransposes) {
    for (int64_t padding = 0; padding <= 4; ++padding) {
      for (int64_t offset = 0; offset < 4; ++offset) {
        ASSERT_NO_FATAL_FAILURE(
            Expect({132, 68, 20, ta, tb}, {.beta = 1.0f,
                                           .padding_a = padding,
                                           .padding_b = (padding + 1) % 5,
                                           .padding_c = (padding + 2) % 5,
                                           .offset_a = offset,
                                           .offset_b = (offset + 1) % 4,
                                           .offset_c = (offset + 2) % 4}));
      }
    }
  }
}

TEST_P(ConformanceTest, KeepsTheErrorBoundOverAWideRangeOfMagnitudes) {
  for (const auto [ta, tb] : kTransposes) {
    ASSERT_NO_FATAL_FAILURE(
        Expect({97, 101, 203, ta, tb}, {.beta = 1.7f, .spread = 25}));
  }
}

TEST_P(ConformanceTest, SpreadsNanAndInfAsIeeeSays) {
  for (const auto [ta, tb] : kTransposes) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity()}) {
      const GemmShape shape{37, 41, 29, ta, tb};
      Problem in_a(shape, {.beta = 1.0f}, random_);
      in_a.a().data()[3] = value;
      ASSERT_NO_FATAL_FAILURE(Expect(in_a));
      Problem in_b(shape, {}, random_);
      in_b.b().data()[5] = value;
      ASSERT_NO_FATAL_FAILURE(Expect(in_b));
      Problem in_c(shape, {.beta = 1.7f}, random_);
      in_c.c().data()[7] = value;
      ASSERT_NO_FATAL_FAILURE(Expect(in_c));
    }
  }
}

TEST_P(ConformanceTest, DoesNothingWhereMOrNIsZero) {
  const EditArgs to_null = [](SgemmArgs& args) {
    args.a = args.b = nullptr;
    args.c = nullptr;
  };
  for (const GemmShape& shape :
       {GemmShape{0, 5, 3}, GemmShape{5, 0, 3}, GemmShape{0, 0, 3},
        GemmShape{0, 0, 0}, GemmShape{0, 128, 128, true, true}}) {
    Problem problem(shape, {.beta = 1.7f}, random_);
    ASSERT_NO_FATAL_FAILURE(Expect(problem, to_null));
  }
}

// A request of a few bytes may say so: its other sizes cost it nothing.
TEST_P(ConformanceTest, DoesNothingWhereMOrNIsZeroWhateverTheOtherSizes) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  LaunchContext context;  // no stream, handle or workspace is needed
  for (const GemmShape& shape :
       {GemmShape{0, kHuge, 0}, GemmShape{kHuge, 0, 0}, GemmShape{0, 0, kHuge},
        GemmShape{0, int64_t{1} << 33, 0}}) {
    for (const auto& [transpose_a, transpose_b] : kTransposes) {
      SgemmArgs args;
      args.shape = shape;
      args.shape.transpose_a = transpose_a;
      args.shape.transpose_b = transpose_b;
      args.lda = StoredColsA(args.shape);
      args.ldb = StoredColsB(args.shape);
      args.ldc = shape.n;
      ASSERT_TRUE(kernel_->Supports(args).ok()) << kernel_->Supports(args);
      ASSERT_EQ(kernel_->WorkspaceBytes({&args, 1}), 0u);
      ASSERT_TRUE(kernel_->Launch({&args, 1}, context).ok());
    }
  }
}

TEST_P(ConformanceTest, ABatchOfNothingIsOk) {
  EXPECT_TRUE(RunKernel(*kernel_, {}).ok());
}

TEST_P(ConformanceTest, RepeatedRunsGiveTheSameBits) {
  Problem problem({257, 131, 513, false, false}, {}, random_);
  const Operand first = RunAlone(problem);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(SameBits(RunAlone(problem), first)) << "run " << i;
  }
}

TEST_P(ConformanceTest, MixedBatchMatesDoNotChangeBits) {
  if (!kernel_->info().batch_invariant) GTEST_SKIP() << "not batch invariant";
  std::vector<Problem> problems;
  for (int i = 0; i < 60; ++i) {
    problems.emplace_back(RandomShape(), RandomOptions(), random_);
  }
  problems.emplace_back(GemmShape{0, 9, 9}, ProblemOptions{}, random_);
  problems.emplace_back(GemmShape{9, 9, 0}, ProblemOptions{.beta = 1.7f},
                        random_);
  ExpectBitsOfSingleRuns(problems);
}

TEST_P(ConformanceTest, ManyEqualBatchMatesDoNotChangeBits) {
  if (!kernel_->info().batch_invariant) GTEST_SKIP() << "not batch invariant";
  std::vector<Problem> problems;
  for (int i = 0; i < 800; ++i) {  // more than a launch takes
    problems.emplace_back(GemmShape{20, 12, 36}, ProblemOptions{}, random_);
  }
  ExpectBitsOfSingleRuns(problems);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ConformanceTest,
                         testing::ValuesIn(KernelNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
