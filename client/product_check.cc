#include "client/product_check.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

constexpr int kVectors = ProductCheck::kVectors;
using RowSums = ProductCheck::RowSums;

bool AllFinite(const float* row, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool bad = false;
  for (int64_t j = 0; j < count; ++j) {
    uint32_t bits;
    std::memcpy(&bits, row + j, sizeof bits);
    bad |= (bits & kExponent) == kExponent;
  }
  return !bad;
}

// Adds a number, with its column's line and weight, to its row's sums.
inline void Add(double x, const double* line, double weight, RowSums* sums) {
  for (int v = 0; v < kVectors; ++v) sums->product[v] += x * line[v];
  sums->weighted += std::fabs(x) * weight;
  sums->squares += x * x;
}

const float* Row(const MatrixView& x, int64_t i) {
  return x.data + i * LeadingDimension(x);
}

// w(v) of a row's sums.
double Width(const RowSums& sums) {
  return std::min(sums.weighted, 10 * std::sqrt(sums.squares));
}

// Columns of op(B) with a NaN or an infinity; empty: none.
std::vector<bool> BadColumns(const MatrixView& b, bool transposed) {
  std::vector<bool> bad;
  for (int64_t i = 0; i < b.rows; ++i) {
    const float* const row = Row(b, i);
    if (AllFinite(row, b.cols)) continue;
    bad.resize(transposed ? b.rows : b.cols);
    if (transposed) {
      bad[i] = true;
      continue;
    }
    for (int64_t j = 0; j < b.cols; ++j) {
      if (!std::isfinite(row[j])) bad[j] = true;
    }
  }
  return bad;
}

}  // namespace

ProductCheck::ProductCheck(const Factors& factors, uint64_t seed)
    : factors_(factors), left_out_(BadColumns(factors.b, factors.transpose_b)) {
  const int64_t n = factors.size.n;
  std::mt19937_64 random(seed);
  signs_.lines.resize(n * kVectors);
  signs_.weights.assign(n, 1.0);
  for (int64_t j = 0; j < n; ++j) {
    if (!left_out_.empty() && left_out_[j]) {
      signs_.weights[j] = 0;
      continue;
    }
    const uint64_t bits = random();
    for (int v = 0; v < kVectors; ++v) {
      signs_.lines[j * kVectors + v] = (bits >> v & 1) != 0 ? 1 : -1;
    }
  }
  if (factors.beta != 0) c_sums_ = SumRows(factors.c, false, signs_);
}

std::vector<RowSums> ProductCheck::SumRows(const MatrixView& stored,
                                           bool transposed,
                                           const Columns& columns) const {
  std::vector<RowSums> sums(transposed ? stored.cols : stored.rows);
  std::vector<float> scratch;
  const bool masked = !left_out_.empty() && &columns == &signs_;
  for (int64_t i = 0; i < stored.rows; ++i) {
    const float* row = Row(stored, i);
    if (transposed) {
      if (masked && left_out_[i]) continue;
      const double* const line = columns.lines.data() + i * kVectors;
      for (int64_t j = 0; j < stored.cols; ++j) {
        Add(row[j], line, columns.weights[i], &sums[j]);
      }
      continue;
    }
    if (masked) {
      scratch.assign(row, row + stored.cols);
      for (int64_t j = 0; j < stored.cols; ++j) {
        if (left_out_[j]) scratch[j] = 0;
      }
      row = scratch.data();
    }
    RowSums sum;
    for (int64_t j = 0; j < stored.cols; ++j) {
      Add(row[j], columns.lines.data() + j * kVectors, columns.weights[j],
          &sum);
    }
    sums[i] = sum;
  }
  return sums;
}

double ProductCheck::gain() const {
  const double terms = static_cast<double>(factors_.size.k) + 4;
  return factors_.precision == SgemmCall::Precision::kTf32
             ? std::exp2(-9) + terms * std::exp2(-22)
             : terms * std::exp2(-24);
}

ProductCheck::Columns ProductCheck::TimesB() const {
  const std::vector<RowSums> sums =
      SumRows(factors_.b, factors_.transpose_b, signs_);
  const double lost = LostInput();
  Columns columns;
  columns.lines.reserve(sums.size() * kVectors);
  columns.weights.reserve(sums.size());
  for (const RowSums& sum : sums) {
    columns.lines.insert(columns.lines.end(), sum.product,
                         sum.product + kVectors);
    columns.weights.push_back(Width(sum) + factors_.size.n * lost);
  }
  return columns;
}

double ProductCheck::LostInput() const {
  return factors_.precision == SgemmCall::Precision::kTf32 ? FLT_MIN / gain()
                                                           : 0;
}

absl::Status ProductCheck::Check(const MatrixView& product) const {
  const auto [m, n, k] = factors_.size;
  const double alpha = factors_.alpha;
  const double beta = factors_.beta;
  if (!std::isfinite(alpha) || !std::isfinite(beta)) return absl::OkStatus();

  std::vector<RowSums> expected(m);
  double lost_of_a = 0;
  if (alpha != 0 && k > 0) {
    const Columns ab = TimesB();
    expected = SumRows(factors_.a, factors_.transpose_a, ab);
    lost_of_a = LostInput() *
                std::accumulate(ab.weights.begin(), ab.weights.end(), 0.0);
  }
  const std::vector<RowSums> found = SumRows(product, false, signs_);

  // One least normal number for each element, and for each product in it.
  const double underflow = n * (1 + std::fabs(alpha) * (k + 1)) * FLT_MIN;
  // Of the sums here, all in double.
  const double rounding = 4 * (k + n + 16.0) * std::sqrt(n) * DBL_EPSILON;
  for (int64_t i = 0; i < m; ++i) {
    const RowSums c = c_sums_.empty() ? RowSums() : c_sums_[i];
    const double width = std::fabs(alpha) * (expected[i].weighted + lost_of_a) +
                         std::fabs(beta) * Width(c);
    // A row of op(A) or of C with a NaN or an infinity.
    if (!std::isfinite(width)) continue;
    if (!std::isfinite(found[i].weighted)) {
      const bool may_overflow =
          std::max(width, expected[i].weighted) > FLT_MAX / 4;
      if (may_overflow) continue;
      return absl::DataLossError(absl::StrCat(
          "the product is wrong: row ", i,
          " has a NaN or an infinity where no factor has one and nothing can "
          "overflow"));
    }
    const double tolerance = (gain() + rounding) * width + underflow;
    for (int v = 0; v < kVectors; ++v) {
      const double difference =
          found[i].product[v] -
          (alpha * expected[i].product[v] + beta * c.product[v]);
      if (std::fabs(difference) <= tolerance) continue;
      return absl::DataLossError(
          absl::StrCat("the product is wrong: the elements of row ", i,
                       " with random signs add up to ", found[i].product[v],
                       ", which is ", std::fabs(difference),
                       " off; rounding explains ", tolerance, " at most"));
    }
  }
  return absl::OkStatus();
}

}  // namespace gemmd::client
