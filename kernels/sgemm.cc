#include "kernels/sgemm.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

absl::Status CheckSize(absl::string_view name, int64_t size) {
  if (size >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", size, "; it must be 0 or more"));
}

// A matrix as stored: `rows` rows of `cols` elements, `ld` elements apart.
absl::Status CheckMatrix(absl::string_view name, int64_t rows, int64_t cols,
                         int64_t ld, const float* data, bool accessed) {
  if (ld < cols) {
    return absl::InvalidArgumentError(
        absl::StrCat("the leading dimension of ", name, " is ", ld,
                     "; its rows have ", cols, " elements"));
  }
  int64_t bytes;
  if (__builtin_mul_overflow(rows, ld, &bytes) ||
      __builtin_mul_overflow(bytes, int64_t{sizeof(float)}, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", rows, " rows of leading dimension ", ld,
                     "; its bytes must fit 63 bits"));
  }
  if (!accessed || rows == 0 || cols == 0) return absl::OkStatus();
  if (data == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is null; ", rows, " x ", cols, " elements are needed"));
  }
  if (reinterpret_cast<uintptr_t>(data) % alignof(float) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is not aligned to ", alignof(float), " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

size_t SgemmKernel::WorkspaceBytes(std::span<const SgemmArgs>) const {
  return 0;
}

absl::Status ValidateArgs(const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  absl::Status status = CheckSize("m", s.m);
  status.Update(CheckSize("n", s.n));
  status.Update(CheckSize("k", s.k));
  if (!status.ok()) return status;

  const bool reads_operands = args.alpha != 0 && s.m > 0 && s.n > 0;
  status.Update(CheckMatrix("a", StoredRowsA(s), StoredColsA(s), args.lda,
                            args.a, reads_operands));
  status.Update(CheckMatrix("b", StoredRowsB(s), StoredColsB(s), args.ldb,
                            args.b, reads_operands));
  status.Update(CheckMatrix("c", s.m, s.n, args.ldc, args.c, true));
  return status;
}

}  // namespace gemmd
