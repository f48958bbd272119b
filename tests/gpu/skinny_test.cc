// What `skinny` promises beyond the conformance suite, whose products of many
// rows and short k seldom reach the sum of several slices: of each of its ways,
// also the one that the registry has not.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/skinny_sgemm.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class SkinnyTest : public KernelTest {
 protected:
  void SetUp() override {
    const auto registered = TestRegistry().Find("skinny");
    if (!registered.ok()) {
      if (KernelsMustRun()) FAIL() << registered.status();
      GTEST_SKIP() << registered.status().message();
    }
    auto made =
        MakeSkinnySgemm((*registered)->info(), GetParam() == "warp_rings"
                                                   ? SkinnyWay::kWarpRings
                                                   : SkinnyWay::kBlockRing);
    ASSERT_TRUE(made.ok()) << made.status();
    made_ = *std::move(made);
    kernel_ = made_.get();
  }

 private:
  std::unique_ptr<const SgemmKernel> made_;
};

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

// A row's bits, of whatever product and however many others are with it.
TEST_P(SkinnyTest, ARowHasTheSameBitsAmongAnyOthers) {
  for (const auto& [n, k] :
       {std::pair<int64_t, int64_t>{130, 2000}, {64, 4097}, {515, 77}}) {
    for (const auto [ta, tb] : kTransposes) {
      const ProblemOptions options = RandomOptions();
      std::vector<Problem> problems;
      for (const int64_t m : {1, 3, 8, 5, 16, 20}) {
        problems.emplace_back(GemmShape{m, n, k, ta, tb}, options, random_);
      }
      ASSERT_NO_FATAL_FAILURE(ExpectBitsOfSingleRuns(problems));
      Problem all({64, n, k, false, tb}, {}, random_);
      const Operand whole = RunAlone(all);
      for (const int64_t rows : {1, 7, 16, 30, 63}) {
        // The same product's first rows alone.
        const auto part =
            RunKernel(*kernel_, {{&all}},
                      [rows](SgemmArgs& args) { args.shape.m = rows; });
        ASSERT_TRUE(part.ok()) << part.status();
        for (int64_t i = 0; i < rows * all.args().ldc; ++i) {
          const int64_t at = whole.offset + i;
          ASSERT_EQ(std::memcmp(&whole.memory[at], &part->front().memory[at],
                                sizeof(float)),
                    0)
              << rows << " rows of 64, element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SkinnyTest,
                         testing::Values("block_ring", "warp_rings"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
