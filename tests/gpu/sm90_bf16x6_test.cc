// What sm90_bf16x6 promises beyond the conformance suite, whose products are
// too short along k to reach the tensor cores.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/prepared_sgemm.h"
#include "tests/gpu/lambda_kernel.h"
#include "tests/unit/kernels/kernel_test.h"

namespace gemmd {
namespace {

class Sm90Bf16x6Test : public KernelTest {
 protected:
  const SgemmKernel& Kernel(absl::string_view name) {
    const auto found = TestRegistry().Find(name);
    EXPECT_TRUE(found.ok()) << found.status();
    return **found;
  }
  Operand Run(absl::string_view kernel, Problem& problem) {
    auto result = RunKernel(Kernel(kernel), {{&problem}});
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? std::move(result->front()) : Operand{};
  }
  // The Frobenius norm of C - A B, from sums in float64.
  static double Error(Problem& problem, const Operand& c) {
    const SgemmArgs args = problem.args();
    const GemmShape& s = args.shape;
    double error = 0;
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < s.k; ++l) {
          sum += double{args.a[i * args.lda + l]} * args.b[l * args.ldb + j];
        }
        error += std::pow(c.data()[i * args.ldc + j] - sum, 2);
      }
    }
    return std::sqrt(error);
  }
};

TEST_P(Sm90Bf16x6Test, ComputesEveryEdgeOfATile) {
  for (int i = 0; i < 40; ++i) {
    GemmShape shape = RandomShape();
    shape.k = std::vector<int64_t>{
        1024, 1025, 1055, 1056, 1057, 1087, 1543}[RandomBelow(7)];
    Problem problem(shape, RandomOptions(), random_);
    ASSERT_NO_FATAL_FAILURE(Expect(problem)) << problem.ToString();
  }
}

TEST_P(Sm90Bf16x6Test, CutsTheLastTilesAlongKToTheSameBitsEachTime) {
  // 9 tiles for 132 SMs: slices of the shortest length.
  Problem problem({3 * 128 - 1, 3 * 192 - 2, 4096}, {.beta = 1.0f}, random_);
  const Operand first = RunAlone(problem);
  EXPECT_EQ(problem.Check(first), "");
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(SameBits(first, RunAlone(problem))) << "run " << i;
  }
}

TEST_P(Sm90Bf16x6Test, ErrsNoMoreThanFp32SummedInOrder) {
  using Value = std::function<float(std::mt19937&)>;
  const auto uniform = [](std::mt19937& random) {
    return std::uniform_real_distribution<float>(-1, 1)(random);
  };
  const std::vector<std::pair<std::string, Value>> inputs = {
      {"uniform", uniform},
      {"positive", [&](auto& random) { return std::abs(uniform(random)); }},
      {"normal",
       [](auto& random) { return std::normal_distribution<float>()(random); }},
      {"log-uniform",
       [&](auto& random) {
         return uniform(random) * std::exp2(20 * uniform(random));
       }},
      {"mixed scales", [&](auto& random) {
         return uniform(random) * (random() % 8 == 0 ? 1e6f : 1e-6f);
       }}};
  for (const auto& [name, value] : inputs) {
    for (const int64_t k : {1280, 2048, 4096}) {
      Problem problem({64, 96, k}, {}, random_);
      for (float& x : problem.a().memory) x = value(random_);
      for (float& x : problem.b().memory) x = value(random_);
      EXPECT_LE(Error(problem, Run("sm90_bf16x6", problem)),
                Error(problem, Run("naive", problem)))
          << name << ", k " << k;
    }
  }
}

TEST_P(Sm90Bf16x6Test, LeavesWhatBf16CannotHoldToFp32) {
  using Limits = std::numeric_limits<float>;
  for (const float x : {Limits::infinity(), -Limits::infinity(),
                        Limits::quiet_NaN(), Limits::denorm_min(),
                        Limits::min(), 0x1p-111f, Limits::max(), 0x1p126f}) {
    Problem problem({130, 200, 1030}, {}, random_);
    const SgemmArgs args = problem.args();
    problem.a().data()[RandomBelow(args.shape.m) * args.lda + 7] = x;
    EXPECT_TRUE(
        SameBits(Run("sm90_bf16x6", problem), Run("sm90_ffma", problem)))
        << x;
  }
}

TEST_P(Sm90Bf16x6Test, LeavesSumsThatMightOverflowToFp32) {
  // 1030 products of 2^120 at most fit, but not the sums of their parts' bound.
  Problem problem({64, 64, 1030}, {}, random_);
  for (float& x : problem.a().memory) x = std::ldexp(x, 60);
  for (float& x : problem.b().memory) x = std::ldexp(x, 60);
  const Operand result = Run("sm90_bf16x6", problem);
  EXPECT_EQ(problem.Check(result), "");
  EXPECT_TRUE(SameBits(result, Run("sm90_ffma", problem)));
}

// The product with A, B or both prepared, in the workspace's first bytes.
LambdaKernel WithPrepared(const SgemmKernel& kernel, Problem& problem,
                          bool prepare_a, bool prepare_b) {
  const PreparedSgemm& prepared = *kernel.prepared();
  const SgemmArgs args = problem.args();
  const GemmShape& s = args.shape;
  const size_t a_bytes =
      prepared.PreparedBytes(StoredRowsA(s), StoredColsA(s), KDirectionOfA(s));
  const size_t b_bytes =
      prepared.PreparedBytes(StoredRowsB(s), StoredColsB(s), KDirectionOfB(s));
  const size_t bytes = kernel.WorkspaceBytes({&args, 1});
  return LambdaKernel(
      a_bytes + b_bytes + bytes,
      [=, &prepared](const SgemmArgs& p, const LaunchContext& context) {
        char* const at = static_cast<char*>(context.workspace);
        PreparedOperands operands;
        absl::Status status;
        if (prepare_a) {
          operands.a = at;
          status.Update(prepared.Prepare(p.a, p.lda, StoredRowsA(s),
                                         StoredColsA(s), KDirectionOfA(s), at,
                                         context.stream));
        }
        if (prepare_b) {
          operands.b = at + a_bytes;
          status.Update(prepared.Prepare(p.b, p.ldb, StoredRowsB(s),
                                         StoredColsB(s), KDirectionOfB(s),
                                         at + a_bytes, context.stream));
        }
        LaunchContext rest = context;
        rest.workspace = at + a_bytes + b_bytes;
        rest.workspace_bytes = prepared.WorkspaceBytes(p, operands);
        // Twice where that changes nothing: a form outlives its first use.
        if (status.ok()) status = prepared.Launch(p, operands, rest);
        if (status.ok() && p.beta == 0) {
          status = prepared.Launch(p, operands, rest);
        }
        return status;
      });
}

TEST_P(Sm90Bf16x6Test, PreparedOperandsGiveTheSameBits) {
  for (int i = 0; i < 60; ++i) {
    GemmShape shape = RandomShape();
    shape.k = std::vector<int64_t>{3, 1024, 1031, 1056, 1543}[RandomBelow(5)];
    Problem problem(shape, RandomOptions(), random_);
    if (i % 4 == 0) {  // what BF16 cannot hold, in one of the two
      Operand& operand = i % 8 == 0 ? problem.a() : problem.b();
      operand.data()[0] = std::vector<float>{
          0x1p-120f, std::numeric_limits<float>::infinity()}[RandomBelow(2)];
    }
    const Operand plain = RunAlone(problem);
    const int which = 1 + static_cast<int>(RandomBelow(3));
    const auto result = RunKernel(
        WithPrepared(*kernel_, problem, which & 1, which & 2), {{&problem}});
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_TRUE(SameBits(plain, result->front()))
        << problem.ToString() << ", prepared " << which;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Sm90Bf16x6Test,
                         testing::Values("sm90_bf16x6"),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace gemmd
