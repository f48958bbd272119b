// The yardstick, cublas: cublasSgemm, one call a problem, back to back on the
// stream.
//
// Batch invariant in this form: no call knows of another, and a call's path in
// cuBLAS follows from its own arguments. Stacking requests into one call, or
// cublasSgemmStridedBatched, would not be: both change the bits.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/ladder.h"

namespace gemmd {
namespace {

// cuBLAS from CUDA 12.6 update 2 up to 13.1 computes wrongly on compute
// capability 9.0 when a leading dimension passes 2^31 - 1 bytes (release notes,
// CUB-9572).
constexpr int64_t kMaxLeadingDimension =
    std::numeric_limits<int32_t>::max() / int64_t{sizeof(float)};

class CublasSgemm final : public SgemmKernel {
 public:
  CublasSgemm(KernelInfo info, const CublasLibrary* library)
      : SgemmKernel(std::move(info)), library_(library) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    if (args.shape.m == 0 || args.shape.n == 0) return absl::OkStatus();
    const int64_t largest = std::max({args.lda, args.ldb, args.ldc});
    if (largest <= kMaxLeadingDimension) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("cublas takes leading dimensions up to ",
                     kMaxLeadingDimension, ", got ", largest));
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (const SgemmArgs& problem : problems) {
      if (problem.shape.m == 0 || problem.shape.n == 0) continue;
      if (context.cublas == nullptr) {
        return absl::InternalError("cublas was launched without a handle");
      }
      SgemmArgs args = problem;
      if (args.alpha == 0) args.shape.k = 0;
      // cuBLAS refuses a leading dimension of 0 even where k is 0.
      args.lda = std::max<int64_t>(args.lda, 1);
      args.ldb = std::max<int64_t>(args.ldb, 1);
      absl::Status status = library_->Sgemm(context.cublas, args);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const CublasLibrary* const library_;
};

}  // namespace

MadeKernel MakeCublasSgemm(KernelInfo info) {
  const auto library = CublasLibrary::Get();
  if (!library.ok()) return library.status();
  return std::make_unique<const CublasSgemm>(std::move(info), *library);
}

}  // namespace gemmd
