// What `skinny` promises beyond the conformance suite, whose products of many
// rows and short k seldom reach the sum of several slices.

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class SkinnyTest : public KernelTest {};

TEST_P(SkinnyTest, ComputesEveryNumberOfRowsOfASplitProduct) {
  for (const int64_t m :
       {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 300}) {
    for (const auto [ta, tb] : kTransposes) {
      ASSERT_NO_FATAL_FAILURE(
          Expect({m, 100, 3000, ta, tb}, {.beta = RandomBelow(2) * 1.7f}))
          << m << " rows, transposes " << ta << tb;
    }
  }
}

TEST_P(SkinnyTest, ComputesEveryEdgeOfN) {
  for (const int64_t n : {1, 3, 4, 63, 64, 65, 66, 127, 129, 1000}) {
    for (const auto [ta, tb] : kTransposes) {
      ASSERT_NO_FATAL_FAILURE(Expect({9, n, 515, ta, tb}, RandomOptions()));
    }
  }
}

TEST_P(SkinnyTest, ComputesEveryEdgeOfK) {
  for (const int64_t k : {1, 3, 4, 5, 31, 32, 33, 63, 95, 287, 288, 2049}) {
    for (const auto [ta, tb] : kTransposes) {
      ASSERT_NO_FATAL_FAILURE(Expect({17, 70, k, ta, tb}, RandomOptions()));
    }
  }
}

// More rows than a launch takes, and a split B: launches share the workspace.
TEST_P(SkinnyTest, ManyRowsOnOneSplitB) {
  for (const auto [ta, tb] : kTransposes) {
    ASSERT_NO_FATAL_FAILURE(Expect({700, 70, 1025, ta, tb}));
  }
}

TEST_P(SkinnyTest, RepeatedRunsOfASplitProductGiveTheSameBits) {
  Problem problem({5, 200, 5000}, {.beta = 1.0f}, random_);
  const Operand first = RunAlone(problem);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(SameBits(RunAlone(problem), first)) << "run " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SkinnyTest, testing::Values("skinny"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
