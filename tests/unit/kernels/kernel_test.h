// The fixture of the tests that run over every kernel of the linked machine's
// memory space (test_machine.h): on the host here, on a GPU from tests/gpu.

#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kernels/sgemm.h"
#include "tests/unit/kernels/problem.h"
#include "tests/unit/kernels/test_machine.h"

namespace gemmd {

constexpr std::array<std::array<bool, 2>, 4> kTransposes = {
    {{false, false}, {false, true}, {true, false}, {true, true}}};
constexpr std::array<float, 4> kScalars = {0.0f, 1.0f, -1.0f, 1.7f};

// Around the tiles of every kernel: 4, 8, 16, 32, 64, 128, 256.
constexpr std::array<int64_t, 23> kSizes = {1,  2,   3,   4,   5,   7,   8,  9,
                                            15, 16,  17,  31,  32,  33,  63, 64,
                                            65, 127, 128, 129, 255, 256, 257};

// The kernels to run over, as parameters of a test suite.
inline std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const KernelEntry& entry : TestRegistry().entries()) {
    if (entry.info.space == TestSpace()) names.push_back(entry.info.name);
  }
  return names;
}

class KernelTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto found = TestRegistry().Find(GetParam());
    if (found.ok()) {
      kernel_ = *found;
    } else if (KernelsMustRun()) {
      FAIL() << found.status();
    } else {
      GTEST_SKIP() << found.status().message();
    }
  }

  // Runs one problem alone and checks all of its result.
  void Expect(Problem& problem, const EditArgs& edit = {}) {
    const auto result = RunKernel(*kernel_, {{&problem}}, edit);
    ASSERT_TRUE(result.ok())
        << result.status() << " for " << problem.ToString();
    ASSERT_EQ(problem.Check(result->front()), "");
  }

  void Expect(const GemmShape& shape, const ProblemOptions& options = {}) {
    Problem problem(shape, options, random_);
    Expect(problem);
  }

  // The result of one problem alone.
  Operand RunAlone(Problem& problem) {
    auto result = RunKernel(*kernel_, {{&problem}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::move(result->front()) : Operand{};
  }

  // Runs all of them in one Launch; each must have the bits it has alone.
  void ExpectBitsOfSingleRuns(std::vector<Problem>& problems) {
    std::vector<Problem*> pointers;
    for (Problem& problem : problems) pointers.push_back(&problem);
    const auto together = RunKernel(*kernel_, pointers);
    ASSERT_TRUE(together.ok()) << together.status();
    for (size_t i = 0; i < problems.size(); ++i) {
      ASSERT_EQ(problems[i].Check((*together)[i]), "") << "problem " << i;
      ASSERT_TRUE(SameBits(RunAlone(problems[i]), (*together)[i]))
          << "problem " << i << ": " << problems[i].ToString();
    }
  }

  int64_t RandomSize() {
    return kSizes[std::uniform_int_distribution<size_t>(
        0, kSizes.size() - 1)(random_)];
  }
  int64_t RandomBelow(int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random_);
  }
  GemmShape RandomShape() {
    return {RandomSize(), RandomSize(), RandomSize(), RandomBelow(2) == 1,
            RandomBelow(2) == 1};
  }
  ProblemOptions RandomOptions() {
    return {.alpha = kScalars[RandomBelow(kScalars.size())],
            .beta = kScalars[RandomBelow(kScalars.size())],
            .padding_a = RandomBelow(6),
            .padding_b = RandomBelow(6),
            .padding_c = RandomBelow(6),
            .offset_a = RandomBelow(4),
            .offset_b = RandomBelow(4),
            .offset_c = RandomBelow(4)};
  }

  std::mt19937 random_{TestSeed()};
  const SgemmKernel* kernel_ = nullptr;
};

}  // namespace gemmd
