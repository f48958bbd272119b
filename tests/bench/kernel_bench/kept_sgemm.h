// A kernel that keeps the forms of its operands, as a server does for resident
// matrices.

#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/prepared_sgemm.h"
#include "tests/bench/kernel_bench/cuda_owner.h"
#include "tests/bench/kernel_bench/operands.h"

namespace gemmd {

// Named "sm90_bf16x6, B kept" or "sm90_bf16x6, A and B kept". Computes products
// of the operands it was made for alone.
class KeptSgemm : public SgemmKernel {
 public:
  KeptSgemm(const SgemmKernel& kernel, const Operands& operands, bool keep_a)
      : SgemmKernel(InfoOf(kernel, keep_a)), kernel_(kernel) {
    for (int i = 0; i < operands.sets(); ++i) {
      for (const SgemmArgs& p : operands.set(i)) {
        const GemmShape& s = p.shape;
        forms_[p.b] =
            Keep(p.b, p.ldb, StoredRowsB(s), StoredColsB(s), KDirectionOfB(s));
        if (!keep_a) continue;
        forms_[p.a] =
            Keep(p.a, p.lda, StoredRowsA(s), StoredColsA(s), KDirectionOfA(s));
      }
    }
    Check(cudaDeviceSynchronize(), "the operands' forms");
  }

  absl::Status Supports(const SgemmArgs& args) const override {
    return kernel_.Supports(args);
  }
  size_t WorkspaceBytes(std::span<const SgemmArgs> problems) const override {
    return kernel_.WorkspaceBytes(problems);
  }
  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (const SgemmArgs& p : problems) {
      absl::Status status = kernel_.prepared()->Launch(
          p, {.a = FormOf(p.a), .b = FormOf(p.b)}, context);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  static KernelInfo InfoOf(const SgemmKernel& kernel, bool keep_a) {
    KernelInfo info = kernel.info();
    info.name += keep_a ? ", A and B kept" : ", B kept";
    return info;
  }
  const void* FormOf(const float* operand) const {
    const auto found = forms_.find(operand);
    return found == forms_.end() ? nullptr : found->second;
  }
  const void* Keep(const float* x, int64_t ld, int64_t rows, int64_t cols,
                   KDirection k) {
    memory_.push_back(AllocateOnDevice<char>(
        kernel_.prepared()->PreparedBytes(rows, cols, k)));
    void* const form = memory_.back().get();
    const absl::Status status =
        kernel_.prepared()->Prepare(x, ld, rows, cols, k, form, nullptr);
    if (!status.ok()) {
      std::fprintf(stderr, "kernel_bench: %s\n", status.ToString().c_str());
      std::exit(1);
    }
    return form;
  }

  const SgemmKernel& kernel_;
  std::map<const float*, const void*> forms_;
  std::vector<DeviceArray<char>> memory_;
};

}  // namespace gemmd
