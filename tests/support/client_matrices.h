// Matrices for the tests of the client library.

#pragma once

#include <cstdint>

#include "gemmd/matrix.h"

namespace gemmd {

// Uniform in [-1, 1]; the seed is printed once. Any thread.
Matrix RandomMatrix(int64_t rows, int64_t cols);

// Shapes too.
bool SameBits(const Matrix& x, const Matrix& y);

// Of `count` numbers: unlike ==, NaN equals itself and -0 is not 0.
bool SameBits(const float* x, const float* y, int64_t count);

}  // namespace gemmd
