// Whether a product is right, for much less than it costs to multiply.
//
// Freivalds (1977): if C is not A B, then C x != A (B x) for at least half of
// the vectors x of signs. In floating point the two differ a little for a right
// C as well, so the question becomes by how much they may.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/sgemm_check.h"
#include "gemmd/sgemm.h"

namespace gemmd::client {

// One product's check, with kVectors vectors. O(mk + kn + mn) in double.
//
// What is tolerated in row i: with u = 2^-24 and g = (k + 4) u, a right product
// has |C - exact|_ij <= g (|alpha| |A||B| + |beta C|)_ij (gemmd.v1.Precision).
// Over signs that the server does not know, sum_j x_j err_ij is within
//
//   T_i = g (|alpha| sum_l |A_il| w_l + |beta| w(C_i)),
//   w(v) = min(|v|_1, 10 |v|_2),  w_l = w(row l of op(B)),
//
// always by the first norm, and by the second (Hoeffding's inequality) but for
// odds of 2 exp(-50) = 4e-22 a term. PRECISION_TF32 has g = 2^-9 + (k + 4)
// 2^-22, and loses inputs below the smallest normal number. Underflow and the
// check's own rounding are added.
//
// What is found: an element of row i that is off by more than T_i is missed
// with a probability of at most 2^-kVectors. What is smaller is found when
// enough of it adds up.
//
// What is not looked at: rows of op(A) or C, and columns of op(B), with a NaN
// or an infinity; rows whose sums may overflow, where C has one. Elsewhere a
// NaN or an infinity in the product is wrong.
class ProductCheck {
 public:
  static constexpr int kVectors = 8;

  // What was multiplied, in memory. A scalar that is not finite: nothing is
  // looked at.
  struct Factors {
    MatrixView a;
    MatrixView b;
    MatrixView c;  // used when beta != 0
    bool transpose_a = false;
    bool transpose_b = false;
    float alpha = 1;
    float beta = 0;
    SgemmCall::Precision precision = SgemmCall::Precision::kFp32;
    ProductSize size;
  };

  // Draws the vectors, and reads `c`, since the product may come to lie there.
  ProductCheck(const Factors& factors, uint64_t seed);

  // DATA_LOSS when `product` cannot be right. A and B are as they were.
  absl::Status Check(const MatrixView& product) const;

  // A row, times the vectors; and how long it is.
  struct RowSums {
    double product[kVectors] = {};
    double weighted = 0;  // sum |row_j| weight_j
    double squares = 0;   // sum row_j^2
  };

 private:
  // What rows are multiplied with: for each of their columns, a line of
  // kVectors numbers, and a weight.
  struct Columns {
    std::vector<double> lines;
    std::vector<double> weights;
  };

  std::vector<RowSums> SumRows(const MatrixView& stored, bool transposed,
                               const Columns& columns) const;
  Columns TimesB() const;
  double gain() const;  // g
  // What an input may be taken for instead of 0, as a part of g.
  double LostInput() const;

  const Factors factors_;
  std::vector<bool> left_out_;   // columns of op(B); empty: none
  Columns signs_;                // of op(B); 0 where left out
  std::vector<RowSums> c_sums_;  // with beta != 0
};

}  // namespace gemmd::client
