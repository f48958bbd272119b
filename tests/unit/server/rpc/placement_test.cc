#include "server/rpc/placement.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace gemmd {
namespace {

class Memory : public ResidentMemory {
 public:
  explicit Memory(int device) : device_(device) {}
  std::byte* data() const override { return nullptr; }
  size_t size() const override { return size_t{1} << 40; }
  int device() const override { return device_; }

 private:
  const int device_;
};

std::shared_ptr<StoredMatrix> Matrix(int64_t rows,
                                     const std::vector<int>& devices) {
  auto matrix = std::make_shared<StoredMatrix>(
      rows, 10, std::make_unique<Memory>(devices[0]));
  for (size_t i = 1; i < devices.size(); ++i) {
    matrix->AddCopy(std::make_unique<Memory>(devices[i]));
  }
  return matrix;
}

using Matrices = std::vector<std::shared_ptr<StoredMatrix>>;

constexpr double kIdle[] = {0, 0, 0};

TEST(PlacementTest, AProductGoesToWhereMostOfItsBytesAre) {
  for (uint64_t turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(ChooseDevice(Matrices{Matrix(5, {1})}, kIdle, turn), 1);
    EXPECT_EQ(
        ChooseDevice(Matrices{Matrix(5, {1}), Matrix(9, {2})}, kIdle, turn), 2);
    EXPECT_EQ(
        ChooseDevice(Matrices{Matrix(5, {1}), Matrix(9, {2}), Matrix(5, {1})},
                     kIdle, turn),
        1);
  }
}

TEST(PlacementTest, ACopyThatIsThereCounts) {
  EXPECT_EQ(ChooseDevice(Matrices{Matrix(5, {1}), Matrix(9, {2, 1})}, kIdle, 2),
            1);
}

TEST(PlacementTest, OfEqualsTheOneWithTheLeastToDoIsTaken) {
  const double outstanding[] = {0, 5, 3};
  const Matrices matrices = {Matrix(5, {2, 1})};
  EXPECT_EQ(ChooseDevice(matrices, outstanding, 1), 2);
  EXPECT_EQ(ChooseDevice(Matrices{}, outstanding, 1), 0);
}

TEST(PlacementTest, AMatrixIsCopiedWhenItsDeviceIsTheBottleneck) {
  const Matrices matrices = {Matrix(5, {1})};  // 200 bytes
  const double some[] = {0, 199, 0};
  EXPECT_EQ(ChooseDevice(matrices, some, 0), 1);
  const double more[] = {7, 208, 9};
  EXPECT_EQ(ChooseDevice(matrices, more, 0), 0);
  EXPECT_EQ(ChooseDevice(matrices, more, 0, /*copies=*/false), 1);
}

TEST(PlacementTest, WhatHasNoPlaceIsSpread) {
  std::vector<int> products(3);
  for (uint64_t turn = 0; turn < 9; ++turn) {
    ++products[ChooseDevice(Matrices{}, kIdle, turn)];
  }
  EXPECT_EQ(products, (std::vector<int>{3, 3, 3}));
}

}  // namespace
}  // namespace gemmd
