// A kernel for tests of what chooses kernels.

#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "kernels/sgemm.h"

namespace gemmd {

// A kernel that only says what it is and supports m up to a limit.
class NamedKernel : public SgemmKernel {
 public:
  NamedKernel(KernelInfo info, int64_t m_limit)
      : SgemmKernel(std::move(info)), m_limit_(m_limit) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    if (args.shape.m <= m_limit_) return absl::OkStatus();
    return absl::FailedPreconditionError(info().name + " has no such m");
  }
  absl::Status Launch(std::span<const SgemmArgs>,
                      const LaunchContext&) const override {
    return absl::UnimplementedError("");
  }

 private:
  const int64_t m_limit_;
};

}  // namespace gemmd
