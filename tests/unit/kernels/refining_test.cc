#include "kernels/refining.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/fake_tuning_device.h"
#include "tests/unit/kernels/named_kernel.h"

namespace gemmd {
namespace {

TEST(FinerGridTest, HasOneMoreBetweenEachTwoAndNoPowerOfTwo) {
  const SelectionGrid coarse = DefaultSelectionGrid();
  const SelectionGrid fine = FinerGrid(coarse);
  for (const auto& [before, after, in_tiles] :
       {std::tuple(coarse.m, fine.m, true), std::tuple(coarse.n, fine.n, true),
        std::tuple(coarse.k, fine.k, false)}) {
    EXPECT_EQ(after.size(), 2 * before.size() - 1);
    EXPECT_TRUE(std::ranges::is_sorted(after));
    EXPECT_TRUE(std::ranges::includes(after, before));
    for (const int64_t size : after) {
      if (std::ranges::count(before, size) > 0 || size <= 4) continue;
      EXPECT_FALSE(std::has_single_bit(static_cast<uint64_t>(size))) << size;
      if (in_tiles && size > 64) {
        EXPECT_EQ(size % 64, 48) << size;
      }
    }
  }
}

TEST(FinerGridTest, LeavesNeighboursAlone) {
  const SelectionGrid grid = {.m = {1, 2}, .n = {2, 3, 9}, .k = {7, 8}};
  const SelectionGrid fine = FinerGrid(grid);
  EXPECT_EQ(fine.m, grid.m);
  EXPECT_EQ(fine.n, (std::vector<int64_t>{2, 3, 5, 9}));
  EXPECT_EQ(fine.k, grid.k);
}

// Kernels "level", "steep" and "emulated", of which a function says what they
// take.
class RefineTest : public testing::Test {
 protected:
  RefineTest() {
    std::vector<KernelEntry> entries;
    for (const std::string name : {"level", "steep", "emulated"}) {
      KernelEntry& entry = entries.emplace_back();
      entry.info.name = name;
      entry.info.space = MemorySpace::kDevice;
      if (name == "emulated") entry.info.precision = Precision::kFp32Emulated;
      entry.kernel = std::make_unique<NamedKernel>(entry.info, 100'000);
    }
    registry_ = std::make_unique<KernelRegistry>(std::move(entries));
    device_.answer = [this](const std::string& name, const SgemmArgs& like) {
      asked_.emplace(name, like.shape.m, like.shape.n, like.shape.k);
      return Time(name, like.shape);
    };
  }

  double Time(const std::string& name, const GemmShape& s) const {
    if (name == "level") return 100;
    if (name == "emulated") return emulated_;
    return static_cast<double>(s.k) + (s.k > jump_after_ ? 50 : 0);
  }

  // In order of kernels.
  std::vector<double> Refined(double near, int64_t m, int64_t n, int64_t k) {
    const auto coarse = Tune(*registry_, device_, {.gpu = "a GPU"}, grid_,
                             [](int, int, absl::string_view) {});
    EXPECT_TRUE(coarse.ok()) << coarse.status();
    asked_.clear();
    const auto fine = Refine(*registry_, device_, *coarse, near,
                             [this](int done, int of, absl::string_view) {
                               last_ = {done, of};
                             });
    EXPECT_TRUE(fine.ok()) << fine.status();
    const auto times = fine->Measured({}, m, n, k);
    return {times.begin(), times.end()};
  }

  const SelectionGrid grid_ = {
      .m = {16, 64}, .n = {16, 24}, .k = {60, 96, 200}};
  std::unique_ptr<KernelRegistry> registry_;
  FakeTuningDevice device_;
  double emulated_ = 1000;
  int64_t jump_after_ = 1000;
  std::set<std::tuple<std::string, int64_t, int64_t, int64_t>> asked_;
  std::pair<int, int> last_;
};

TEST_F(RefineTest, MeasuresAtNewShapesWhereTheRaceIsOpen) {
  ASSERT_EQ(FinerGrid(grid_).k, (std::vector<int64_t>{60, 72, 96, 136, 200}));
  Refined(1.1, 16, 16, 60);
  for (const auto& [name, m, n, k] : asked_) {
    EXPECT_EQ(k, 96) << "elsewhere steep is 20 or more off";
    EXPECT_FALSE((m == 16 || m == 64) && (n == 16 || n == 24)) << "not new";
    EXPECT_NE(name, "emulated");
  }
  // Each of m = 16, 28, 64 and n = 16, 20, 24 but the four that were there.
  EXPECT_EQ(asked_.size(), 2u * 5);
  EXPECT_EQ(last_, std::pair(9 * 8, 9 * 8));
  Refined(1.5, 16, 16, 60);
  EXPECT_EQ(asked_.size(), 2u * (9 + 9 + 5)) << "72, 136 and 96";
}

TEST_F(RefineTest, SeesAJumpThatWasBetweenTwoShapes) {
  jump_after_ = 100;
  EXPECT_EQ(Refined(1.6, 16, 16, 136)[1], 186.0) << "interpolated: 155";
}

TEST_F(RefineTest, KeepsWhatWasMeasuredAndPredictsTheRest) {
  emulated_ = 130;
  EXPECT_EQ(Refined(1.01, 16, 16, 200), (std::vector<double>{100, 200, 130}));
  const std::vector<double> between = Refined(1.01, 28, 16, 136);
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(between[0], 100);
  EXPECT_NEAR(between[1], 136, 1e-3);
  EXPECT_EQ(between[2], 130);
}

TEST_F(RefineTest, ForgetsWhatIsFarBehind) {
  EXPECT_TRUE(std::isinf(Refined(1.1, 28, 16, 60)[2]));
}

// Those of FP32 race among themselves, also where an emulated one is ahead.
TEST_F(RefineTest, RunsARaceForEachPrecision) {
  emulated_ = 10;
  Refined(1.1, 16, 16, 60);
  EXPECT_TRUE(asked_.contains({"steep", 28, 16, 96}));
  emulated_ = 97;
  Refined(1.1, 16, 16, 60);
  EXPECT_TRUE(asked_.contains({"emulated", 28, 16, 96}));
}

TEST_F(RefineTest, EndsWhereTheDeviceFails) {
  const auto coarse = Tune(*registry_, device_, {.gpu = "a GPU"}, grid_,
                           [](int, int, absl::string_view) {});
  ASSERT_TRUE(coarse.ok());
  device_.answer = [](const std::string&, const SgemmArgs&) {
    return absl::StatusOr<double>(absl::InternalError("no"));
  };
  EXPECT_EQ(Refine(*registry_, device_, *coarse, 1.5,
                   [](int, int, absl::string_view) {})
                .status(),
            absl::InternalError("no"));
}

}  // namespace
}  // namespace gemmd
