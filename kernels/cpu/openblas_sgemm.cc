// C = alpha * op(A) * op(B) + beta * C through OpenBLAS.
//
// Batch invariant: each problem is a cblas_sgemm call of its own whose
// arguments do not depend on the others, and OpenBLAS chooses its path and its
// number of threads from those arguments and from settings fixed at start.
// Stacking requests into one call would not be: that changes the bits.

#include <cblas.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/openblas_library.h"

namespace gemmd {
namespace {

// C = beta * C, where there is no product to add. OpenBLAS is not asked: its
// small-matrix kernels multiply A and B by an alpha of 0, and so let their NaN
// through.
void Scale(const SgemmArgs& p) {
  for (int64_t i = 0; i < p.shape.m; ++i) {
    float* c = p.c + i * p.ldc;
    if (p.beta == 0) {
      std::fill(c, c + p.shape.n, 0.0f);
    } else {
      for (int64_t j = 0; j < p.shape.n; ++j) c[j] *= p.beta;
    }
  }
}

KernelInfo Info() {
  return {.name = "openblas",
          .description = "CPU, OpenBLAS cblas_sgemm",
          .precision = Precision::kFp32,
          .space = MemorySpace::kHost,
          .batch_invariant = true};
}

class OpenblasSgemm final : public SgemmKernel {
 public:
  explicit OpenblasSgemm(const OpenblasLibrary& library)
      : SgemmKernel(Info()), library_(library) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    const GemmShape& s = args.shape;
    if (s.m == 0 || s.n == 0) return absl::OkStatus();
    const int64_t largest =
        std::max({s.m, s.n, s.k, args.lda, args.ldb, args.ldc});
    if (largest <= std::numeric_limits<blasint>::max()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat("openblas counts in ", 8 * sizeof(blasint),
                     " bits: sizes and leading dimensions go up to ",
                     std::numeric_limits<blasint>::max(), ", got ", largest));
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext&) const override {
    for (const SgemmArgs& p : problems) {
      const GemmShape& s = p.shape;
      if (s.m == 0 || s.n == 0) continue;
      if (s.k == 0 || p.alpha == 0) {
        Scale(p);
        continue;
      }
      library_.sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
                     s.transpose_b ? CblasTrans : CblasNoTrans, s.m, s.n, s.k,
                     p.alpha, p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
    }
    return absl::OkStatus();
  }

 private:
  const OpenblasLibrary library_;
};

}  // namespace

KernelEntry OpenblasEntry() {
  const absl::StatusOr<OpenblasLibrary> library = OpenblasLibrary::Get();
  if (!library.ok()) return UnavailableEntry(Info(), library.status());
  return {.info = Info(),
          .kernel = std::make_unique<OpenblasSgemm>(*library),
          .unavailable_reason = ""};
}

}  // namespace gemmd
