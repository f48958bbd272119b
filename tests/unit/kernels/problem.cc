#include "tests/unit/kernels/problem.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "kernels/reference.h"

namespace gemmd {
namespace {

// A quiet NaN that no arithmetic makes: told from a computed one by its bits.
const float kPoison = std::bit_cast<float>(uint32_t{0x7fc0dead});
constexpr int64_t kGuard = 300;

bool IsPoison(float x) {
  return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(kPoison);
}

float RandomValue(std::mt19937& random, int spread) {
  const float x = std::uniform_real_distribution<float>(-1, 1)(random);
  if (spread == 0) return x;
  return std::ldexp(
      x, std::uniform_int_distribution<int>(-spread, spread)(random));
}

Operand MakeOperand(int64_t rows, int64_t cols, int64_t ld, int64_t offset,
                    int64_t guard, int spread, std::mt19937& random) {
  const int64_t size = rows == 0 || cols == 0 ? 0 : (rows - 1) * ld + cols;
  Operand operand{std::vector<float>(offset + size + guard, kPoison), offset};
  for (int64_t i = 0; i < rows && cols > 0; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      operand.data()[i * ld + j] = RandomValue(random, spread);
    }
  }
  return operand;
}

}  // namespace

uint32_t TestSeed() {
  static const uint32_t seed = [] {
    const char* text = std::getenv("GEMMD_TEST_SEED");
    const uint32_t value =
        text != nullptr ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10))
                        : std::random_device()();
    std::cout << "GEMMD_TEST_SEED=" << value << std::endl;
    return value;
  }();
  return seed;
}

Problem::Problem(const GemmShape& shape, const ProblemOptions& options,
                 std::mt19937& random) {
  args_.shape = shape;
  args_.alpha = options.alpha;
  args_.beta = options.beta;
  args_.lda = StoredColsA(shape) + options.padding_a;
  args_.ldb = StoredColsB(shape) + options.padding_b;
  args_.ldc = shape.n + options.padding_c;
  a_ = MakeOperand(StoredRowsA(shape), StoredColsA(shape), args_.lda,
                   options.offset_a, 0, options.spread, random);
  b_ = MakeOperand(StoredRowsB(shape), StoredColsB(shape), args_.ldb,
                   options.offset_b, 0, options.spread, random);
  // An offset of whole 256 bytes more leaves room for a guard before C.
  const int64_t offset_c = 320 + options.offset_c;
  c_ = MakeOperand(shape.m, shape.n, args_.ldc, offset_c, kGuard,
                   options.spread, random);
  if (options.beta == 0) std::fill(c_.memory.begin(), c_.memory.end(), kPoison);
}

SgemmArgs Problem::args() {
  SgemmArgs args = args_;
  args.a = a_.data();
  args.b = b_.data();
  args.c = c_.data();
  return args;
}

void Problem::PoisonOperands() {
  std::fill(a_.memory.begin(), a_.memory.end(), kPoison);
  std::fill(b_.memory.begin(), b_.memory.end(), kPoison);
}

std::string Problem::Check(const Operand& result) {
  const ReferenceProduct want = ComputeReference(args());
  const int64_t first = result.offset;
  for (int64_t at = 0; at < std::ssize(result.memory); ++at) {
    const float got = result.memory[at];
    const bool in_c = at >= first && shape().n > 0;
    const int64_t i = in_c ? (at - first) / args_.ldc : shape().m;
    const int64_t j = in_c ? (at - first) % args_.ldc : 0;
    if (i >= shape().m || j >= shape().n) {
      if (!IsPoison(got)) {
        return absl::StrCat("wrote ", got, " outside C, at element ",
                            at - first, " of ", ToString());
      }
      continue;
    }
    const double value = want.value[i * shape().n + j];
    const double bound =
        Fp32ErrorBound(shape().k, want.magnitude[i * shape().n + j]);
    const bool ok = std::isnan(value)   ? std::isnan(got) && !IsPoison(got)
                    : std::isinf(value) ? got == value
                                        : std::fabs(got - value) <= bound;
    if (!ok) {
      return absl::StrCat("C(", i, ", ", j, ") is ", got, ", wanted ", value,
                          " +- ", bound, " for ", ToString());
    }
  }
  return "";
}

std::string Problem::ToString() const {
  const GemmShape& s = args_.shape;
  return absl::StrCat("m ", s.m, ", n ", s.n, ", k ", s.k, ", ",
                      s.transpose_a ? "T" : "N", s.transpose_b ? "T" : "N",
                      ", alpha ", args_.alpha, ", beta ", args_.beta, ", lda ",
                      args_.lda, ", ldb ", args_.ldb, ", ldc ", args_.ldc,
                      ", offsets ", a_.offset, " ", b_.offset, " ", c_.offset);
}

bool SameBits(const Operand& x, const Operand& y) {
  return x.memory.size() == y.memory.size() &&
         (x.memory.empty() ||
          std::memcmp(x.memory.data(), y.memory.data(),
                      x.memory.size() * sizeof(float)) == 0);
}

}  // namespace gemmd
