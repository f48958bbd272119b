// A kernel that keeps forms: the numbers negated, in the host's memory.

#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/prepared_sgemm.h"

namespace gemmd {

class FakeForms : public PreparedSgemm {
 public:
  bool UsesForms(const SgemmArgs& args) const override {
    return args.shape.k > 1;
  }
  // Half as much again as the matrix; 64 bytes more along columns.
  size_t PreparedBytes(int64_t rows, int64_t cols,
                       KDirection k) const override {
    return rows * cols * 6 + (k == KDirection::kAlongColumns ? 64 : 0);
  }
  absl::Status Prepare(const float* x, int64_t ld, int64_t rows, int64_t cols,
                       KDirection k, void* form,
                       CUstream_st* stream) const override {
    ++prepared;
    if (!status.ok()) return status;
    auto* const to = static_cast<float*>(form);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) to[i * cols + j] = -x[i * ld + j];
    }
    return absl::OkStatus();
  }
  size_t WorkspaceBytes(const SgemmArgs&,
                        const PreparedOperands&) const override {
    return 0;
  }
  absl::Status Launch(const SgemmArgs&, const PreparedOperands&,
                      const LaunchContext&) const override {
    return absl::OkStatus();
  }

  mutable int prepared = 0;
  absl::Status status;  // of Prepare
};

}  // namespace gemmd
