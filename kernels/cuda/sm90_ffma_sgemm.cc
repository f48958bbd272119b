// sm90_ffma: strict FP32 on Hopper (sm90_ffma.h), one product after the other.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "kernels/cuda/pack_matrix.h"
#include "kernels/cuda/sm90_ffma.h"
#include "kernels/cuda/sm90_kernels.h"

namespace gemmd {
namespace {

class Sm90FfmaSgemm final : public SgemmKernel {
 public:
  Sm90FfmaSgemm(KernelInfo info, const Sm90Ffma& ffma)
      : SgemmKernel(std::move(info)), ffma_(ffma) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    return Sm90Ffma::Supports(args, info().name);
  }

  size_t WorkspaceBytes(std::span<const SgemmArgs> problems) const override {
    size_t bytes = 0;  // one after the other, they share it
    for (const SgemmArgs& args : problems) {
      if (HasProduct(args)) bytes = std::max(bytes, ffma_.WorkspaceBytes(args));
    }
    return bytes;
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (const SgemmArgs& args : problems) {
      absl::Status status =
          HasProduct(args)
              ? ffma_.Launch(args, context, nullptr)
              : ScaleMatrix(args.c, args.ldc, args.shape.m, args.shape.n,
                            args.beta, context.stream);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const Sm90Ffma ffma_;
};

}  // namespace

MadeKernel MakeSm90FfmaSgemm(KernelInfo info) {
  absl::StatusOr<Sm90Ffma> ffma = Sm90Ffma::Create();
  if (!ffma.ok()) return ffma.status();
  return std::make_unique<const Sm90FfmaSgemm>(std::move(info), *ffma);
}

}  // namespace gemmd
