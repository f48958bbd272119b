// A CUDA backend for a test, where there is a device.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/registry.h"
#include "server/execute/cuda/cuda_backend.h"
#include "tests/unit/server/execute/backend_problem.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {

// Skips without a device, and fails instead where GEMMD_REQUIRE_GPU=1.
class CudaBackendFixture : public ::testing::Test {
 protected:
  void SetUp() override { Make({}); }

  void Make(const BackendOptions& options) {
    backend_.reset();
    absl::StatusOr<std::unique_ptr<Backend>> backend =
        CreateCudaBackend(options, registry_);
    if (!backend.ok()) {
      const char* const required = std::getenv("GEMMD_REQUIRE_GPU");
      if (required != nullptr && std::string(required) == "1") {
        FAIL() << backend.status();
      }
      GTEST_SKIP() << backend.status();
    }
    backend_ = *std::move(backend);
  }

  Device& device() { return *backend_->devices()[0]; }
  StagingPool& staging() { return backend_->staging(); }

  const SgemmKernel& Kernel(absl::string_view name) {
    const absl::StatusOr<const SgemmKernel*> kernel = registry_.Find(name);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    return **kernel;
  }

  // Every kernel of the device that this machine can run.
  std::vector<const SgemmKernel*> Kernels() {
    std::vector<const SgemmKernel*> kernels;
    for (const KernelEntry& entry : registry_.entries()) {
      if (entry.kernel != nullptr && entry.info.space == MemorySpace::kDevice) {
        kernels.push_back(entry.kernel.get());
      }
    }
    return kernels;
  }

  BatchReport Run(Batch batch) { return RunToEnd(device(), std::move(batch)); }

  std::shared_ptr<Task> MakeTask(const SgemmKernel& kernel, Ending& ending,
                                 GemmShape shape = {8, 8, 8},
                                 MonotonicTime deadline = kNever) {
    BackendProblem problem(staging(), kernel, shape, 1, 0, random_);
    problem.spec().deadline = deadline;
    return problem.MakeTask(ending.For());
  }

  const unsigned seed_ = std::random_device{}();
  const testing::ScopedTrace trace_{__FILE__, __LINE__,
                                    testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  const KernelRegistry registry_ = KernelRegistry::Create();
  std::unique_ptr<Backend> backend_;
};

// A device kernel of which a test says what a launch does.
class ScriptedDeviceKernel : public SgemmKernel {
 public:
  explicit ScriptedDeviceKernel(bool fused)
      : SgemmKernel({.name = "scripted",
                     .description = "scripted",
                     .space = MemorySpace::kDevice,
                     .batch_invariant = true,
                     .fusion = fused ? Fusion::kAnyShapes : Fusion::kNone}) {}
  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }
  size_t WorkspaceBytes(std::span<const SgemmArgs>) const override {
    return workspace_bytes;
  }
  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    launches.push_back(problems.size());
    return on_launch ? on_launch(problems, context) : absl::OkStatus();
  }
  size_t workspace_bytes = 0;
  mutable std::vector<size_t> launches;
  std::function<absl::Status(std::span<const SgemmArgs>, const LaunchContext&)>
      on_launch;
};

}  // namespace gemmd
