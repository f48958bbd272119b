// What holds for the CUDA kernels beyond the conformance suite.

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class LadderTest : public KernelTest {};

// Every step sums k in order, one FMA at a time: faster, never different.
TEST_P(LadderTest, EveryStepGivesTheBitsOfTheFirst) {
  const auto naive = TestRegistry().Find("naive");
  ASSERT_TRUE(naive.ok()) << naive.status();
  for (int i = 0; i < 60; ++i) {
    Problem problem(RandomShape(), RandomOptions(), random_);
    const auto want = RunKernel(**naive, {{&problem}});
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_TRUE(SameBits(RunAlone(problem), want->front()))
        << problem.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LadderTest,
                         testing::Values("block_tiled", "conflict_free",
                                         "double_buffered", "small_tiles"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

// Matrices larger than the host would like, made and read in part on the
// device.
class LargeTest : public KernelTest {
 protected:
  struct Free {
    void operator()(float* p) const { cudaFree(p); }
  };
  using Memory = std::unique_ptr<float, Free>;

  // `size` floats whose bytes are all `byte`; null where they do not fit.
  static Memory Allocate(int64_t size, int byte) {
    float* p = nullptr;
    if (cudaMalloc(&p, size * sizeof(float)) != cudaSuccess) {
      cudaGetLastError();
      return nullptr;
    }
    cudaMemset(p, byte, size * sizeof(float));
    return Memory(p);
  }
  static void Put(float* at, float value) {
    cudaMemcpy(at, &value, sizeof(value), cudaMemcpyHostToDevice);
  }
  static std::vector<float> Get(const float* at, int64_t count) {
    std::vector<float> values(count);
    cudaMemcpy(values.data(), at, count * sizeof(float),
               cudaMemcpyDeviceToHost);
    return values;
  }
  void Launch(const SgemmArgs& args) {
    Problem tiny({1, 1, 1}, {}, random_);
    const auto done =
        RunKernel(*kernel_, {{&tiny}}, [&](SgemmArgs& a) { a = args; });
    ASSERT_TRUE(done.ok()) << done.status();
  }
};

constexpr int64_t kPast31Bits = (int64_t{1} << 31) + 37;
constexpr float kFilled = 0.747058808803558349609375f;  // bytes 3f 3f 3f 3f

TEST_P(LargeTest, TakesRowsPast31Bits) {
  const SgemmArgs args{
      .shape = {kPast31Bits, 1, 1}, .lda = 1, .ldb = 1, .ldc = 1};
  if (!kernel_->Supports(args).ok()) {
    // The copy engine's coordinates have 32 bits.
    EXPECT_THAT(GetParam(), testing::StartsWith("sm90_"));
    EXPECT_THAT(std::string(kernel_->Supports(args).message()),
                testing::HasSubstr("takes m, n and k up to "));
    return;
  }
  const Memory a = Allocate(kPast31Bits, 0x3f);
  const Memory b = Allocate(1, 0);
  const Memory c = Allocate(kPast31Bits, 0xff);
  if (!a || !b || !c) GTEST_SKIP() << "not enough device memory";
  Put(b.get(), 2.0f);
  Put(a.get() + kPast31Bits - 1, 5.0f);
  ASSERT_NO_FATAL_FAILURE(Launch({.shape = {kPast31Bits, 1, 1},
                                  .a = a.get(),
                                  .lda = 1,
                                  .b = b.get(),
                                  .ldb = 1,
                                  .c = c.get(),
                                  .ldc = 1}));
  const int64_t part = 1 << 20;
  for (const int64_t from :
       {int64_t{0}, kPast31Bits / 2, kPast31Bits - 1 - part}) {
    EXPECT_THAT(Get(c.get() + from, part), testing::Each(2 * kFilled)) << from;
  }
  EXPECT_EQ(Get(c.get() + kPast31Bits - 1, 1)[0], 10.0f);
}

TEST_P(LargeTest, TakesLeadingDimensionsPast31Bits) {
  const int64_t size = 2 * kPast31Bits + 5;  // of A [3, 5]
  SgemmArgs args{.shape = {3, 1, 5}, .lda = kPast31Bits, .ldb = 1, .ldc = 1};
  if (!kernel_->Supports(args).ok()) {
    EXPECT_EQ(GetParam(), "cublas");
    EXPECT_THAT(std::string(kernel_->Supports(args).message()),
                testing::HasSubstr("leading dimensions up to 536870911"));
    return;
  }
  const Memory a = Allocate(size, 0xff);
  const Memory b = Allocate(5, 0x3f);
  const Memory c = Allocate(3, 0xff);
  if (!a || !b || !c) GTEST_SKIP() << "not enough device memory";
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 5; ++k) Put(a.get() + i * kPast31Bits + k, 1 << i);
  }
  args.a = a.get();
  args.b = b.get();
  args.c = c.get();
  ASSERT_NO_FATAL_FAILURE(Launch(args));
  const std::vector<float> result = Get(c.get(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(result[i], (1 << i) * 5 * kFilled, 1e-5f * (1 << i));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LargeTest, testing::ValuesIn(KernelNames()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
