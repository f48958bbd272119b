#include "kernels/cuda/sm90_ffma_plan.h"

#include <array>
#include <cstdint>

#include "gtest/gtest.h"

namespace gemmd {
namespace {

// What an H200 reports, and the blocks of each kind that an SM holds.
FfmaDevice H200() {
  constexpr std::array<int, kMaxFfmaSlices + 1> kOne = {0,  132, 66, 39, 30,
                                                        22, 17,  15, 15};
  constexpr std::array<int, kFfmaKinds> kOnAnSm = {2, 1, 1, 1, 3, 3, 1, 2, 2};
  FfmaDevice device = {.sm_count = 132};
  for (size_t kind = 1; kind < kFfmaKinds; ++kind) {
    for (size_t slices = 1; slices <= kMaxFfmaSlices; ++slices) {
      device.clusters[kind][slices] = kOnAnSm[kind] * kOne[slices];
    }
  }
  return device;
}

FfmaPlan Plan(int64_t m, int64_t n, int64_t k) {
  return PlanFfma({.m = m, .n = n, .k = k}, H200());
}

TEST(FfmaPlanTest, FillsTheChipWhateverTheShape) {
  EXPECT_EQ(Plan(4096, 4096, 1024).kind, FfmaKind::kStreamK);
  EXPECT_EQ(Plan(1 << 20, 1 << 20, 64).kind, FfmaKind::kStreamK);
  for (const int64_t size : {64, 128, 256, 512, 768, 1024}) {
    EXPECT_NE(Plan(size, size, 1024).kind, FfmaKind::kStreamK) << size;
  }
  EXPECT_EQ(Plan(64, 64, 1024), (FfmaPlan{FfmaKind::kCluster32, 8}));
  EXPECT_EQ(Plan(768, 768, 1024), (FfmaPlan{FfmaKind::kCluster96, 2}));
}

TEST(FfmaPlanTest, CutsNoFinerThanKAllows) {
  for (const int64_t k : {1, 31, 32, 33, 64, 65}) {
    const FfmaPlan plan = Plan(64, 64, k);
    EXPECT_LE(plan.slices, (k + 31) / 32) << "k " << k;
    EXPECT_LE(plan.slices, kMaxFfmaSlices);
    EXPECT_GE(plan.slices, 1);
  }
}

TEST(FfmaPlanTest, TakesTheLeastTimeItReckons) {
  for (const int64_t size : {33, 200, 700, 3000}) {
    const FfmaProduct product = {.m = size, .n = size, .k = 500};
    const double least = FfmaTime(product, PlanFfma(product, H200()), H200());
    for (const auto kind : {FfmaKind::kStreamK, FfmaKind::kCluster128,
                            FfmaKind::kCluster64, FfmaKind::kCluster32}) {
      EXPECT_LE(least, FfmaTime(product, {kind, 1}, H200())) << size;
    }
  }
}

// A short product is over before its operands could be brought into form.
TEST(FfmaPlanTest, CopiesUnfitOperandsWhereThatIsQuicker) {
  const auto copies = [](int64_t size, int64_t k, int unfit_operands) {
    return CopiesOperands(PlanFfma({.m = size,
                                    .n = size,
                                    .k = k,
                                    .unfit_elements = unfit_operands * size * k,
                                    .unfit_operands = unfit_operands},
                                   H200())
                              .kind);
  };
  EXPECT_TRUE(copies(100, 100, 1));
  EXPECT_TRUE(copies(300, 1000, 2));
  EXPECT_FALSE(copies(4096, 4096, 2));
  EXPECT_FALSE(copies(100, 100, 0));
}

}  // namespace
}  // namespace gemmd
