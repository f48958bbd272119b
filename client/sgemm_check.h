// Whether a call makes sense, found out before anything is sent.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gemmd/sgemm.h"

namespace gemmd::client {

// The sizes of a product.
struct ProductSize {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// Of one message, request or answer: protobuf counts a message's bytes in 31
// bits. What is left below that is room for everything but the numbers.
inline constexpr uint64_t kMaxNumberBytes = (uint64_t{1} << 31) - (64 << 10);

// The call's sizes, or INVALID_ARGUMENT (shapes, leading dimensions, pointers,
// beta and c, outputs, the request id).
absl::StatusOr<ProductSize> CheckCall(const SgemmCall& call);

// `x` alone: sizes, leading dimension, pointer. INVALID_ARGUMENT with `name`.
absl::Status CheckMatrix(const MatrixView& x, absl::string_view name);

// Of a matrix: 1 to 128 of [A-Za-z0-9._-].
absl::Status CheckMatrixId(absl::string_view id);

inline int64_t LeadingDimension(const MatrixView& x) {
  return x.leading_dimension == 0 ? x.cols : x.leading_dimension;
}
inline bool IsEmpty(const MatrixView& x) { return x.rows == 0 || x.cols == 0; }
inline bool IsPacked(const MatrixView& x) {
  return x.rows <= 1 || LeadingDimension(x) == x.cols;
}
inline size_t PackedBytes(const MatrixView& x) {
  return sizeof(float) * static_cast<size_t>(x.rows) *
         static_cast<size_t>(x.cols);
}

}  // namespace gemmd::client
