// Launches the sm90 FP32 kernels; what sm90_ffma_sgemm.cc makes a SgemmKernel
// of, and what other kernels fall back on.

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/sm90_ffma_plan.h"
#include "kernels/cuda/stream_k.h"
#include "kernels/sgemm.h"

namespace gemmd {

// Thread-safety: const methods may be called from any thread at once.
class Sm90Ffma {
 public:
  // For the current device. FAILED_PRECONDITION, with a reason meant for users,
  // where it cannot run the kernels.
  static absl::StatusOr<Sm90Ffma> Create();

  const FfmaDevice& device() const { return device_; }

  // FAILED_PRECONDITION, naming `kernel`, for a product too large.
  static absl::Status Supports(const SgemmArgs& args, absl::string_view kernel);

  // What Launch(args) needs of a workspace.
  size_t WorkspaceBytes(const SgemmArgs& args) const;

  // Enqueues the product on context.stream. Where `only_if` is not null and the
  // word it points to, in device memory, is 0 by then, C is left alone.
  //
  // Needs:  HasProduct(args).
  // Errors: INTERNAL if a launch fails or the workspace is too small.
  absl::Status Launch(const SgemmArgs& args, const LaunchContext& context,
                      const uint32_t* only_if) const;

  // Both again for a plan of the caller's choice, which is how tests and
  // measurements reach each kernel. slices: 1 .. steps of 32 along k.
  size_t WorkspaceBytes(const SgemmArgs& args, FfmaPlan plan) const;
  absl::Status Launch(const SgemmArgs& args, FfmaPlan plan,
                      const LaunchContext& context,
                      const uint32_t* only_if) const;

 private:
  explicit Sm90Ffma(const FfmaDevice& device) : device_(device) {}

  FfmaPlan Plan(const SgemmArgs& args) const;
  StreamK PlanStreamK(const GemmShape& shape) const;

  FfmaDevice device_;
};

// Whether A and B are read at all, and C has elements.
bool HasProduct(const SgemmArgs& args);

// A number that no other launch of this process, nor whatever memory held
// before, has: what one block leaves for another is there once its flag shows
// it.
uint64_t NextLaunchId();

}  // namespace gemmd
