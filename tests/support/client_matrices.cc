#include "tests/support/client_matrices.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>

namespace gemmd {

Matrix RandomMatrix(int64_t rows, int64_t cols) {
  static const unsigned seed = [] {
    const unsigned value = std::random_device{}();
    std::printf("seed %u\n", value);
    return value;
  }();
  static std::atomic<unsigned> thread = 0;
  thread_local std::mt19937 random(seed + thread++);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix x(rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) x.data()[i] = uniform(random);
  return x;
}

bool SameBits(const Matrix& x, const Matrix& y) {
  return x.rows() == y.rows() && x.cols() == y.cols() &&
         SameBits(x.data(), y.data(), x.rows() * x.cols());
}

bool SameBits(const float* x, const float* y, int64_t count) {
  const void* x_bytes = x;
  const void* y_bytes = y;
  return count == 0 ||
         std::memcmp(x_bytes, y_bytes, sizeof(float) * count) == 0;
}

}  // namespace gemmd
