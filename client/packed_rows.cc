#include "client/packed_rows.h"

#include <algorithm>
#include <cstring>

#include "client/sgemm_check.h"

namespace gemmd::client {

void CopyPacked(const MatrixView& x, size_t first, size_t count, void* to) {
  if (count == 0) return;
  if (const float* from = InPlace(x, first, count); from != nullptr) {
    std::memcpy(to, from, sizeof(float) * count);
    return;
  }
  const auto cols = static_cast<size_t>(x.cols);
  float* out = static_cast<float*>(to);
  size_t row = first / cols;
  size_t col = first % cols;
  while (count > 0) {
    const size_t take = std::min(count, cols - col);
    std::memcpy(out, x.data + row * LeadingDimension(x) + col,
                sizeof(float) * take);
    out += take;
    count -= take;
    ++row;
    col = 0;
  }
}

const float* InPlace(const MatrixView& x, size_t first, size_t count) {
  if (IsPacked(x)) return x.data + first;
  const auto cols = static_cast<size_t>(x.cols);
  if (first % cols + count > cols) return nullptr;
  return x.data + first / cols * LeadingDimension(x) + first % cols;
}

}  // namespace gemmd::client
