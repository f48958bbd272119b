// What the conformance suite cannot reach in sm90_ffma: every plan on any
// shape, and launches that overlap.

#include "kernels/cuda/sm90_ffma.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/gpu/lambda_kernel.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

constexpr int64_t kTempAlignment = 256;

class Sm90FfmaTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (kernel_ == nullptr) return;
    auto ffma = Sm90Ffma::Create();
    ASSERT_TRUE(ffma.ok()) << ffma.status();
    ffma_ = std::make_unique<Sm90Ffma>(*ffma);
  }

  // Enough for any plan of shapes up to 300.
  static constexpr size_t kWorkspace = size_t{64} << 20;

  FfmaPlan RandomPlan(int64_t k) {
    const auto kind = static_cast<FfmaKind>(RandomBelow(kFfmaKinds));
    const int64_t most = std::min<int64_t>(kMaxFfmaSlices, (k + 31) / 32);
    const int64_t slices =
        kind == FfmaKind::kStreamK ? 1 : 1 + RandomBelow(most);
    return {kind, static_cast<int>(slices)};
  }

  std::unique_ptr<Sm90Ffma> ffma_;
};

TEST_P(Sm90FfmaTest, EveryPlanIsRightForEveryShape) {
  for (int i = 0; i < 300; ++i) {
    Problem problem(RandomShape(), RandomOptions(), random_);
    if (problem.args().alpha == 0) continue;  // no product, no plan
    const FfmaPlan plan = RandomPlan(problem.shape().k);
    const LambdaKernel planned(
        kWorkspace, [&](const SgemmArgs& args, const LaunchContext& context) {
          return ffma_->Launch(args, plan, context, nullptr);
        });
    const auto result = RunKernel(planned, {{&problem}});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(problem.Check(result->front()), "")
        << problem.ToString() << ", plan " << static_cast<int>(plan.kind)
        << " in " << plan.slices;
  }
}

// Products by a permutation, each of the result of the one before, launched
// without a pause: a launch that did not wait for the one before it would read
// what is not there yet.
TEST_P(Sm90FfmaTest, ALaunchWaitsForTheOneBefore) {
  constexpr int kTimes = 21;
  for (int i = 0; i < 60; ++i) {
    const GemmShape shape = {RandomSize(), 1 + RandomBelow(300), 0};
    const int64_t n = shape.n;
    Problem problem({shape.m, n, n},
                    {.padding_b = RandomBelow(2), .padding_c = RandomBelow(2)},
                    random_);
    std::vector<int64_t> permutation(n);
    std::iota(permutation.begin(), permutation.end(), 0);
    std::ranges::shuffle(permutation, random_);
    const SgemmArgs& args = problem.args();
    for (int64_t k = 0; k < n; ++k) {
      float* row = problem.b().data() + k * args.ldb;
      std::fill_n(row, n, 0.0f);
      row[permutation[k]] = 1.0f;
    }
    const int64_t temp_bytes = (shape.m * n * 4 + kTempAlignment - 1) /
                               kTempAlignment * kTempAlignment;
    const LambdaKernel chain(
        kWorkspace + temp_bytes,
        [&](const SgemmArgs& from, const LaunchContext& context) {
          LaunchContext rest = context;
          rest.workspace = static_cast<char*>(context.workspace) + temp_bytes;
          rest.workspace_bytes -= temp_bytes;
          SgemmArgs next = from;
          SgemmArgs into_temp = from;
          into_temp.c = static_cast<float*>(context.workspace);
          into_temp.ldc = n;
          into_temp.a = from.c;
          into_temp.lda = from.ldc;
          absl::Status status;
          for (int t = 0; t < kTimes && status.ok(); ++t) {
            const SgemmArgs& one = t % 2 == 0 ? next : into_temp;
            status = ffma_->Launch(one, RandomPlan(n), rest, nullptr);
            next.a = into_temp.c;
            next.lda = n;
          }
          return status;
        });
    const auto result = RunKernel(chain, {{&problem}});
    ASSERT_TRUE(result.ok()) << result.status();
    for (int64_t row = 0; row < shape.m; ++row) {
      for (int64_t col = 0; col < n; ++col) {
        int64_t to = col;
        for (int t = 0; t < kTimes; ++t) to = permutation[to];
        ASSERT_EQ(result->front().data()[row * args.ldc + to],
                  problem.a().data()[row * args.lda + col])
            << problem.ToString() << " at " << row << ", " << to;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Sm90FfmaTest, testing::Values("sm90_ffma"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
