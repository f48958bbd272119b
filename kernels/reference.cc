#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace gemmd {
namespace {

// B as stored is [k, n]: row p of it meets the whole row of sums at once.
void AccumulateRows(const SgemmArgs& args, int64_t row, std::span<double> value,
                    std::span<double> magnitude) {
  const GemmShape& s = args.shape;
  for (int64_t p = 0; p < s.k; ++p) {
    const double a =
        s.transpose_a ? args.a[p * args.lda + row] : args.a[row * args.lda + p];
    const float* b = args.b + p * args.ldb;
    for (int64_t j = 0; j < s.n; ++j) value[j] += a * b[j];
    if (magnitude.empty()) continue;
    for (int64_t j = 0; j < s.n; ++j) magnitude[j] += std::fabs(a * b[j]);
  }
}

// B as stored is [n, k]: every element is a dot product of stored rows.
void AccumulateDots(const SgemmArgs& args, int64_t row, std::span<double> value,
                    std::span<double> magnitude) {
  const GemmShape& s = args.shape;
  const float* a = args.a + (s.transpose_a ? row : row * args.lda);
  const int64_t a_step = s.transpose_a ? args.lda : 1;
  for (int64_t j = 0; j < s.n; ++j) {
    const float* b = args.b + j * args.ldb;
    double sum = 0;
    double sum_of_magnitudes = 0;
    for (int64_t p = 0; p < s.k; ++p) {
      const double product = static_cast<double>(a[p * a_step]) * b[p];
      sum += product;
      sum_of_magnitudes += std::fabs(product);
    }
    value[j] = sum;
    if (!magnitude.empty()) magnitude[j] = sum_of_magnitudes;
  }
}

}  // namespace

void ReferenceRow(const SgemmArgs& args, int64_t row, std::span<double> value,
                  std::span<double> magnitude) {
  const GemmShape& s = args.shape;
  std::ranges::fill(value, 0.0);
  std::ranges::fill(magnitude, 0.0);
  if (args.alpha != 0 && s.k > 0 && s.n > 0) {
    if (s.transpose_b) {
      AccumulateDots(args, row, value, magnitude);
    } else {
      AccumulateRows(args, row, value, magnitude);
    }
    for (double& v : value) v *= args.alpha;
    for (double& v : magnitude) v *= std::fabs(args.alpha);
  }
  if (args.beta == 0) return;
  const float* c = args.c + row * args.ldc;
  for (size_t j = 0; j < value.size(); ++j) {
    const double term = static_cast<double>(args.beta) * c[j];
    value[j] += term;
    if (!magnitude.empty()) magnitude[j] += std::fabs(term);
  }
}

ReferenceProduct ComputeReference(const SgemmArgs& args) {
  const size_t n = static_cast<size_t>(args.shape.n);
  const size_t size = static_cast<size_t>(args.shape.m) * n;
  ReferenceProduct product{std::vector<double>(size),
                           std::vector<double>(size)};
  for (int64_t i = 0; i < args.shape.m; ++i) {
    ReferenceRow(args, i, std::span(product.value).subspan(i * n, n),
                 std::span(product.magnitude).subspan(i * n, n));
  }
  return product;
}

double Fp32ErrorBound(int64_t k, double magnitude) {
  return (static_cast<double>(k) + 4) * std::ldexp(1.0, -24) * magnitude +
         std::numeric_limits<float>::min();
}

}  // namespace gemmd
