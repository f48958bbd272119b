// The wire has no transpose for C and for matrices that stay; files may be in
// Fortran order.

#pragma once

#include <cstdint>

#include "gemmd/matrix.h"

namespace gemmd::gemmctl {

inline Matrix Transposed(const Matrix& x) {
  Matrix transposed(x.cols(), x.rows());
  for (int64_t i = 0; i < x.rows(); ++i) {
    for (int64_t j = 0; j < x.cols(); ++j) transposed(j, i) = x(i, j);
  }
  return transposed;
}

}  // namespace gemmd::gemmctl
