// The product in float64, and how far a float32 kernel may be from it: the
// yardstick of every test and the arithmetic of the kernel `reference`.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sgemm.h"

namespace gemmd {

// Row `row` of alpha * op(A) * op(B) + beta * C in float64, `shape.n` values:
// products and sums in double, in the order of k.
//
// `magnitude`, where not empty, gets |alpha| |op(A)| |op(B)| + |beta C|, the
// scale of the rounding errors of each element. The same BLAS rules hold as for
// a kernel: what SgemmArgs says is not read is not read.
//
// Needs: ValidateArgs(args) is OK, host memory, 0 <= row < shape.m.
void ReferenceRow(const SgemmArgs& args, int64_t row, std::span<double> value,
                  std::span<double> magnitude);

// All rows, packed: element (i, j) is at i * n + j.
struct ReferenceProduct {
  std::vector<double> value;
  std::vector<double> magnitude;
};
ReferenceProduct ComputeReference(const SgemmArgs& args);

// The largest error that PRECISION_FP32 promises for an element of that
// `magnitude`: (k + 4) * 2^-24 * magnitude + the smallest normal float.
//
// A sum of k float32 FMAs has at most k roundings, each relative to a partial
// sum no larger than |A||B|; alpha, beta, their sum and the last rounding add
// four. The smallest normal covers results that underflow.
// Source:  Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed.,
//          section 3.5, doi:10.1137/1.9780898718027.
double Fp32ErrorBound(int64_t k, double magnitude);

}  // namespace gemmd
