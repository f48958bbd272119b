#include "kernels/reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using testing::ElementsAre;

// Worked by hand: op(A) = [1 2 3; 4 5 6], op(B) = [1 0; 0 1; -1 2],
// C = [10 20; 30 40], and every stored row has one element of padding.
class ReferenceTest : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

  SgemmArgs Args() {
    const auto [ta, tb] = GetParam();
    return {.shape = {2, 2, 3, ta, tb},
            .alpha = 2.0f,
            .beta = -1.0f,
            .a = ta ? a_transposed_.data() : a_.data(),
            .lda = ta ? 3 : 4,
            .b = tb ? b_transposed_.data() : b_.data(),
            .ldb = tb ? 4 : 3,
            .c = c_.data(),
            .ldc = 3};
  }

  std::vector<float> a_ = {1, 2, 3, kNan, 4, 5, 6};
  std::vector<float> a_transposed_ = {1, 4, kNan, 2, 5, kNan, 3, 6};
  std::vector<float> b_ = {1, 0, kNan, 0, 1, kNan, -1, 2};
  std::vector<float> b_transposed_ = {1, 0, -1, kNan, 0, 1, 2};
  std::vector<float> c_ = {10, 20, kNan, 30, 40};
};

TEST_P(ReferenceTest, GivesTheProductAndItsMagnitude) {
  const ReferenceProduct product = ComputeReference(Args());
  EXPECT_THAT(product.value, ElementsAre(-14, -4, -34, -6));
  EXPECT_THAT(product.magnitude, ElementsAre(18, 36, 50, 74));
}

TEST_P(ReferenceTest, ReadsNoOperandWhereAlphaIsZero) {
  SgemmArgs args = Args();
  args.alpha = 0;
  args.a = args.b = nullptr;
  EXPECT_THAT(ComputeReference(args).value, ElementsAre(-10, -20, -30, -40));
}

TEST_P(ReferenceTest, ReadsNoCWhereBetaIsZero) {
  SgemmArgs args = Args();
  args.beta = 0;
  args.c = nullptr;
  EXPECT_THAT(ComputeReference(args).value, ElementsAre(-4, 16, -4, 34));
}

INSTANTIATE_TEST_SUITE_P(Transposes, ReferenceTest,
                         testing::Values(std::pair(false, false),
                                         std::pair(false, true),
                                         std::pair(true, false),
                                         std::pair(true, true)));

TEST(Fp32ErrorBoundTest, GrowsWithKAndNeverIsZero) {
  EXPECT_EQ(Fp32ErrorBound(0, 0), std::numeric_limits<float>::min());
  EXPECT_DOUBLE_EQ(Fp32ErrorBound(12, 1), std::ldexp(1.0, -20));
}

}  // namespace
}  // namespace gemmd
