#include "client/sgemm_check.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

std::string Shape(int64_t rows, int64_t cols) {
  return absl::StrCat(rows, " x ", cols);
}

// `x` alone: sizes, leading dimension, pointer. Sets its bytes when packed.
absl::Status CheckMatrix(const MatrixView& x, absl::string_view name,
                         uint64_t* bytes) {
  if (x.rows < 0 || x.cols < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", Shape(x.rows, x.cols),
                     "; sizes of 0 and more are wanted"));
  }
  if (x.leading_dimension != 0 && x.leading_dimension < x.cols) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " has the leading dimension ", x.leading_dimension,
        "; wanted is at least its ", x.cols, " columns, or 0 for packed rows"));
  }
  if (x.data == nullptr && !IsEmpty(x)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", Shape(x.rows, x.cols), " and has no data"));
  }
  // Elements, leading dimension included; 2^59 keeps every sum below exact.
  uint64_t span = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(x.rows),
                             static_cast<uint64_t>(LeadingDimension(x)),
                             &span) ||
      span > uint64_t{1} << 59) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is ", Shape(x.rows, x.cols), ", more than memory can hold"));
  }
  *bytes = PackedBytes(x);
  return absl::OkStatus();
}

// A third matrix of the call, `name`, has the product's shape.
absl::Status CheckProductShape(int64_t rows, int64_t cols,
                               absl::string_view name,
                               const ProductSize& size) {
  if (rows == size.m && cols == size.n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", Shape(rows, cols), "; the product is ",
                   Shape(size.m, size.n)));
}

absl::Status CheckC(const SgemmCall& call, const ProductSize& size,
                    uint64_t* bytes) {
  const bool given = call.c.data != nullptr || call.c.rows != 0;
  if (call.beta == 0) {
    if (!given) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "c is given and beta is 0, so c would not count; give a beta, or leave "
        "c out");
  }
  if (!given) {
    if (size.m == 0 || size.n == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("beta is ", call.beta, " and c is missing; give a c of ",
                     Shape(size.m, size.n), ", or leave beta out"));
  }
  if (absl::Status status = CheckMatrix(call.c, "c", bytes); !status.ok()) {
    return status;
  }
  return CheckProductShape(call.c.rows, call.c.cols, "c", size);
}

absl::Status CheckOutput(const SgemmCall& call, const ProductSize& size) {
  const MutableMatrixView& x = call.output;
  if (x.data == nullptr) return absl::OkStatus();
  uint64_t bytes = 0;
  absl::Status status = CheckMatrix(
      {x.data, x.rows, x.cols, x.leading_dimension}, "output", &bytes);
  if (!status.ok()) return status;
  return CheckProductShape(x.rows, x.cols, "output", size);
}

absl::Status CheckMessage(uint64_t bytes, absl::string_view what) {
  if (bytes <= kMaxNumberBytes) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(what, " would be a message of ", bytes,
                   " bytes; one message holds ", kMaxNumberBytes,
                   ": split the product by rows of op(A), columns of op(B)"
                   " or slices of k with beta 1"));
}

}  // namespace

absl::StatusOr<ProductSize> CheckCall(const SgemmCall& call) {
  uint64_t a_bytes = 0;
  uint64_t b_bytes = 0;
  uint64_t c_bytes = 0;
  absl::Status status = CheckMatrix(call.a, "a", &a_bytes);
  if (status.ok()) status = CheckMatrix(call.b, "b", &b_bytes);
  if (!status.ok()) return status;

  const ProductSize size = {
      .m = call.transpose_a ? call.a.cols : call.a.rows,
      .n = call.transpose_b ? call.b.rows : call.b.cols,
      .k = call.transpose_a ? call.a.rows : call.a.cols,
  };
  const int64_t rows_of_b = call.transpose_b ? call.b.cols : call.b.rows;
  if (size.k != rows_of_b) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op(A) is ", Shape(size.m, size.k), " and op(B) is ",
        Shape(rows_of_b, size.n), ": op(A) has ", size.k,
        " columns, and op(B) should have as many rows, not ", rows_of_b));
  }
  uint64_t product_bytes = 0;
  if (__builtin_mul_overflow(size.m, size.n, &product_bytes) ||
      __builtin_mul_overflow(product_bytes, sizeof(float), &product_bytes)) {
    product_bytes = UINT64_MAX;
  }
  status = CheckC(call, size, &c_bytes);
  if (status.ok()) status = CheckOutput(call, size);
  if (status.ok())
    status = CheckMessage(a_bytes + b_bytes + c_bytes, "this request");
  if (status.ok()) status = CheckMessage(product_bytes, "the answer");
  if (!status.ok()) return status;
  return size;
}

}  // namespace gemmd::client
