// What RunKernel (tests/unit/kernels/test_machine.h) needs to run more than a
// kernel of the registry.

#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>

#include "kernels/sgemm.h"

namespace gemmd {

// A kernel that is a function of one product.
class LambdaKernel : public SgemmKernel {
 public:
  using Function =
      std::function<absl::Status(const SgemmArgs&, const LaunchContext&)>;
  LambdaKernel(size_t workspace_bytes, Function function)
      : SgemmKernel({.name = "lambda", .space = MemorySpace::kDevice}),
        workspace_bytes_(workspace_bytes),
        function_(std::move(function)) {}

  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }
  size_t WorkspaceBytes(std::span<const SgemmArgs>) const override {
    return workspace_bytes_;
  }
  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    return function_(problems[0], context);
  }

 private:
  const size_t workspace_bytes_;
  const Function function_;
};

}  // namespace gemmd
