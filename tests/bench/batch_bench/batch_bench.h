// The bench of several products at once: what its sections share.

#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/registry.h"
#include "tests/bench/batch_bench/arena.h"
#include "tests/bench/kernel_bench/stopwatch.h"

namespace gemmd {

constexpr int64_t kArenaFloats = int64_t{3} << 28;
constexpr int64_t kBeyondL2 = int64_t{32} << 20;  // floats: twice 64 MB

// The products of one launch.
using Batch = std::vector<SgemmArgs>;

class BatchBench {
 public:
  explicit BatchBench(double seconds)
      : seconds_(seconds),
        registry_(KernelRegistry::Create()),
        arena_(kArenaFloats),
        cublas_workspace_(AllocateOnDevice<char>(kCublasWorkspaceBytes)) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "cudaStreamCreate");
    const auto library = CublasLibrary::Get();
    auto handle = library.ok() ? (*library)->CreateHandle(
                                     stream_, cublas_workspace_.get(),
                                     kCublasWorkspaceBytes)
                               : absl::StatusOr<CublasHandle>(library.status());
    if (!handle.ok()) {
      std::fprintf(stderr, "batch_bench: %s\n",
                   handle.status().ToString().c_str());
      std::exit(1);
    }
    cublas_ = *std::move(handle);
  }
  ~BatchBench() {
    cublas_ = {};
    cudaStreamDestroy(stream_);
  }

  void Skinny();
  void Equal();
  void Mixed();
  void Bits();

 private:
  // Batches made by `make` until their operands pass twice the L2 cache.
  std::vector<Batch> MakeSets(const std::function<Batch()>& make) {
    arena_.Reset(++seed_);
    std::vector<Batch> sets;
    while (sets.size() < 2 || kArenaFloats - arena_.left() < kBeyondL2) {
      sets.push_back(make());
    }
    return sets;
  }

  double Time(TimingMethod method, const std::vector<Batch>& sets,
              const std::function<void(int, const Batch&)>& run) {
    const int count = static_cast<int>(sets.size());
    const LaunchNumber launch = [&](int i) { run(i % count, sets[i % count]); };
    const double us = EstimateMicroseconds(launch, stream_);
    return TimeLaunches(method, launch, count, us, seconds_, stream_).us_median;
  }

  // The time of a kernel of ours; 0 where it cannot run here.
  double TimeKernel(TimingMethod method, const char* name,
                    const std::vector<Batch>& sets) {
    const auto kernel = registry_.Find(name);
    if (!kernel.ok()) return 0;
    ReserveWorkspace(**kernel, sets);
    return Time(method, sets,
                [&](int, const Batch& batch) { Launch(**kernel, batch); });
  }

  void ReserveWorkspace(const SgemmKernel& kernel,
                        const std::vector<Batch>& sets) {
    workspace_bytes_ = 256;
    for (const Batch& batch : sets) {
      workspace_bytes_ =
          std::max(workspace_bytes_, kernel.WorkspaceBytes(batch));
    }
    workspace_ = AllocateOnDevice<char>(workspace_bytes_);
  }

  void Launch(const SgemmKernel& kernel, std::span<const SgemmArgs> batch) {
    const absl::Status status =
        kernel.Launch(batch, {.stream = stream_,
                              .cublas = cublas_.get(),
                              .workspace = workspace_.get(),
                              .workspace_bytes = workspace_bytes_});
    if (status.ok()) return;
    std::fprintf(stderr, "batch_bench: %s\n", status.ToString().c_str());
    std::exit(1);
  }

  std::vector<float> Read(const SgemmArgs& args) {
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    std::vector<float> c(args.shape.m * args.shape.n);
    Check(cudaMemcpy(c.data(), args.c, c.size() * sizeof(float),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    return c;
  }
  double ShareOfOtherBits(const Batch& batch,
                          const std::vector<std::vector<float>>& want);

  const double seconds_;
  const KernelRegistry registry_;
  Arena arena_;
  DeviceArray<char> cublas_workspace_;
  cudaStream_t stream_ = nullptr;
  CublasHandle cublas_;
  DeviceArray<char> workspace_;
  size_t workspace_bytes_ = 0;
  uint32_t seed_ = 0;
};

}  // namespace gemmd
