#include "client/sgemm_check.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

std::string Shape(int64_t rows, int64_t cols) {
  return absl::StrCat(rows, " x ", cols);
}

// An operand: one on the server has been checked there.
absl::Status CheckOperand(const Operand& x, absl::string_view name) {
  return x.residence() == nullptr ? CheckMatrix(x.view(), name)
                                  : absl::OkStatus();
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

absl::Status CheckC(const SgemmCall& call, const ProductSize& size) {
  const bool given = call.c.residence() != nullptr ||
                     call.c.view().data != nullptr || call.c.rows() != 0;
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
  if (absl::Status status = CheckOperand(call.c, "c"); !status.ok()) {
    return status;
  }
  return CheckProductShape(call.c.rows(), call.c.cols(), "c", size);
}

absl::Status CheckResidentOutput(const SgemmCall& call,
                                 const ProductSize& size) {
  const ResidentOutput& to = *call.resident_output;
  if (call.output.data != nullptr) {
    return absl::InvalidArgumentError(
        "output and resident_output are both given; give one of them");
  }
  if (to.into == nullptr) {
    return to.id.empty() ? absl::OkStatus() : CheckMatrixId(to.id);
  }
  if (!*to.into) {
    return absl::InvalidArgumentError(
        "resident_output.into refers to no matrix; upload one, or leave it "
        "null for a new one");
  }
  if (!to.id.empty()) {
    return absl::InvalidArgumentError(
        "resident_output has an id and a matrix to write into, which has its "
        "own id; give one of them");
  }
  return CheckProductShape(to.into->rows(), to.into->cols(),
                           "resident_output.into", size);
}

absl::Status CheckOutput(const SgemmCall& call, const ProductSize& size) {
  if (call.resident_output.has_value()) return CheckResidentOutput(call, size);
  if (call.output.data == nullptr) return absl::OkStatus();
  absl::Status status = CheckMatrix(call.output, "output");
  if (!status.ok()) return status;
  return CheckProductShape(call.output.rows, call.output.cols, "output", size);
}

// gemmd.v1.SgemmRequest.request_id
constexpr size_t kMaxRequestId = 64;

absl::Status CheckRequestId(const SgemmCall& call) {
  if (call.request_id.size() <= kMaxRequestId) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("request_id has ", call.request_id.size(),
                   " bytes; at most ", kMaxRequestId, " are wanted"));
}

}  // namespace

absl::Status CheckMatrixId(absl::string_view id) {
  const auto wanted = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
           c == '_' || c == '-';
  };
  if (!id.empty() && id.size() <= 128 &&
      std::all_of(id.begin(), id.end(), wanted)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(id.substr(0, 128)),
      "\" is no id of a matrix; 1 to 128 of [A-Za-z0-9._-] are wanted"));
}

absl::Status CheckMatrix(const MatrixView& x, absl::string_view name) {
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
  // Elements, leading dimension included; 2^59 keeps every later sum exact.
  uint64_t span = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(x.rows),
                             static_cast<uint64_t>(LeadingDimension(x)),
                             &span) ||
      span > uint64_t{1} << 59) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is ", Shape(x.rows, x.cols), ", more than memory can hold"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ProductSize> CheckCall(const SgemmCall& call) {
  absl::Status status = CheckOperand(call.a, "a");
  if (status.ok()) status = CheckOperand(call.b, "b");
  if (!status.ok()) return status;

  const ProductSize size = {
      .m = call.transpose_a ? call.a.cols() : call.a.rows(),
      .n = call.transpose_b ? call.b.rows() : call.b.cols(),
      .k = call.transpose_a ? call.a.rows() : call.a.cols(),
  };
  const int64_t rows_of_b = call.transpose_b ? call.b.cols() : call.b.rows();
  if (size.k != rows_of_b) {
    return absl::InvalidArgumentError(absl::StrCat(
        "op(A) is ", Shape(size.m, size.k), " and op(B) is ",
        Shape(rows_of_b, size.n), ": op(A) has ", size.k,
        " columns, and op(B) should have as many rows, not ", rows_of_b));
  }
  uint64_t elements = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(size.m),
                             static_cast<uint64_t>(size.n), &elements) ||
      elements > uint64_t{1} << 59) {
    return absl::InvalidArgumentError(
        absl::StrCat("the product is ", Shape(size.m, size.n),
                     ", more than memory can hold"));
  }
  status = CheckC(call, size);
  if (status.ok()) status = CheckOutput(call, size);
  if (status.ok()) status = CheckRequestId(call);
  if (!status.ok()) return status;
  return size;
}

}  // namespace gemmd::client
