// A product to try a kernel on, laid out so that every wrong access shows.

#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/sgemm.h"

namespace gemmd {

// The seed of this run's random inputs: $GEMMD_TEST_SEED, else a fresh one.
// Printed the first time it is asked for.
uint32_t TestSeed();

// How a Problem departs from packed, aligned operands of plain numbers.
struct ProblemOptions {
  float alpha = 1.0f;
  float beta = 0.0f;
  // Elements added to each leading dimension.
  int64_t padding_a = 0;
  int64_t padding_b = 0;
  int64_t padding_c = 0;
  // Elements by which each pointer misses a 256-byte boundary.
  int64_t offset_a = 0;
  int64_t offset_b = 0;
  int64_t offset_c = 0;
  // Values are signed and span 2^-spread to 2^spread; 0: uniform in [-1, 1].
  int spread = 0;
};

// One operand in memory: `offset` elements, then the stored matrix without the
// last row's padding, then (C alone) a guard.
struct Operand {
  std::vector<float> memory;
  int64_t offset = 0;

  float* data() { return memory.data() + offset; }
  const float* data() const { return memory.data() + offset; }
};

// Random operands of `shape`. All that is no element of a matrix is NaN: what
// is before and after it, the padding of its rows, and C where beta == 0, so
// that a read of it shows in the result and a write of it in memory.
class Problem {
 public:
  Problem(const GemmShape& shape, const ProblemOptions& options,
          std::mt19937& random);

  // The product with host pointers into this problem.
  SgemmArgs args();
  const GemmShape& shape() const { return args_.shape; }

  Operand& a() { return a_; }
  Operand& b() { return b_; }
  Operand& c() { return c_; }

  // Turns A and B to nothing but NaN, as alpha == 0 allows.
  void PoisonOperands();

  // "" when `result`, which has C's layout, is alpha op(A) op(B) + beta C
  // within the bound of PRECISION_FP32 (NaN where and only where float64 gives
  // NaN), and everything around its elements is as it was; else what is wrong.
  std::string Check(const Operand& result);

  std::string ToString() const;

 private:
  SgemmArgs args_;
  Operand a_;
  Operand b_;
  Operand c_;
};

// Whether two operands hold the same bits, NaN included.
bool SameBits(const Operand& x, const Operand& y);

}  // namespace gemmd
