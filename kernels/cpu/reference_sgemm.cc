#include <memory>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/reference.h"

namespace gemmd {
namespace {

class ReferenceSgemm final : public SgemmKernel {
 public:
  ReferenceSgemm()
      : SgemmKernel({.name = "reference",
                     .description = "CPU, sums in float64 and rounds once: "
                                    "the yardstick of accuracy",
                     .precision = Precision::kFp32,
                     .space = MemorySpace::kHost,
                     .batch_invariant = true}) {}

  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext&) const override {
    std::vector<double> row;
    for (const SgemmArgs& p : problems) {
      // Not just to save time: of a product with nothing in it, the other size
      // may be anything.
      if (p.shape.m == 0 || p.shape.n == 0) continue;
      row.resize(p.shape.n);
      for (int64_t i = 0; i < p.shape.m; ++i) {
        ReferenceRow(p, i, row, {});
        float* c = p.c + i * p.ldc;
        for (int64_t j = 0; j < p.shape.n; ++j) {
          c[j] = static_cast<float>(row[j]);
        }
      }
    }
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<const SgemmKernel> MakeReferenceSgemm() {
  return std::make_unique<ReferenceSgemm>();
}

}  // namespace gemmd
