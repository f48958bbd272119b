#include "server/execute/cuda/warm_lease.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "kernels/cuda/cuda_status.h"
#include "server/execute/cuda/segment_copy.h"
#include "server/execute/warm_problems.h"

namespace gemmd {
namespace {

// Small, unaligned, and of the sizes between which cuBLAS changes its kernels.
constexpr std::array<int64_t, 5> kWarmSizes = {16, 65, 256, 1024, 2048};
constexpr std::array<int64_t, 1> kWarmSizesOfOthers = {256};

absl::Status WarmKernels(Lease& lease, std::span<const int64_t> sizes,
                         DeviceMemoryPool& memory,
                         const KernelRegistry& registry) {
  // A and B are one matrix; each of two problems of a launch has its own C.
  const auto matrix_bytes = [&] {
    return sizes.back() * sizes.back() * sizeof(float);
  };
  while (3 * matrix_bytes() > memory.capacity() && sizes.size() > 1) {
    sizes = sizes.first(sizes.size() - 1);
  }
  const size_t matrix = matrix_bytes();
  std::optional<DeviceBlock> block = memory.Allocate(3 * matrix);
  if (!block) return absl::ResourceExhaustedError("no memory to warm up in");
  absl::Status status = CudaStatus(
      cudaMemsetAsync(block->data(), 0, block->size(), lease.stream.get()),
      "cudaMemsetAsync");
  if (!status.ok()) return status;
  LaunchContext context;
  context.stream = lease.stream.get();
  context.cublas = lease.cublas.get();
  for (const KernelEntry& entry : registry.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kDevice) {
      continue;
    }
    for (SgemmArgs args : WarmProblems(sizes)) {
      args.a = args.b = reinterpret_cast<const float*>(block->data());
      args.c = reinterpret_cast<float*>(block->data() + matrix);
      std::array<SgemmArgs, 2> pair = {args, args};
      pair[1].c = reinterpret_cast<float*>(block->data() + 2 * matrix);
      if (!entry.kernel->Supports(args).ok()) continue;
      for (const size_t count : {1, 2}) {
        const std::span<const SgemmArgs> problems(pair.data(), count);
        const size_t needed = entry.kernel->WorkspaceBytes(problems);
        std::optional<DeviceBlock> workspace = memory.Allocate(needed);
        if (!workspace) continue;
        context.workspace = workspace->data();
        context.workspace_bytes = workspace->size();
        if (status = entry.kernel->Launch(problems, context); !status.ok()) {
          return status;
        }
        if (needed > 0) cudaStreamSynchronize(lease.stream.get());
      }
    }
  }
  return CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                    "cudaStreamSynchronize, to warm up");
}

absl::Status WarmCopies(Lease& lease, DeviceMemoryPool& memory,
                        StagingPool& staging) {
  constexpr size_t kBytes = 4096;
  absl::StatusOr<StagingBuffer> host = staging.Allocate(kBytes);
  if (!host.ok()) return host.status();
  std::memset(host->data(), 0, kBytes);
  std::optional<DeviceBlock> block = memory.Allocate(kBytes);
  if (!block) return absl::ResourceExhaustedError("no memory to warm up in");
  const CopySegment in = {block->data(), host->data(), kBytes};
  const CopySegment out = {host->data(), block->data(), kBytes};
  for (const CudaEvent* const event :
       {&lease.started, &lease.copied_in, &lease.computed, &lease.copied_out}) {
    absl::Status status = CopySegmentsByEngine({&in, 1}, cudaMemcpyHostToDevice,
                                               lease.stream.get());
    status.Update(CopySegmentsByEngine({&out, 1}, cudaMemcpyDeviceToHost,
                                       lease.stream.get()));
    status.Update(CopySegmentsByKernel({&in, 1}, lease.stream.get()));
    status.Update(CopySegmentsByKernel({&out, 1}, lease.stream.get()));
    status.Update(CudaStatus(cudaEventRecord(event->get(), lease.stream.get()),
                             "cudaEventRecord"));
    status.Update(CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                             "cudaStreamSynchronize, to warm up"));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WarmLease(Lease& lease, bool all_sizes, DeviceMemoryPool& memory,
                       const KernelRegistry& registry, StagingPool& staging) {
  absl::Status status = WarmKernels(
      lease,
      all_sizes ? std::span<const int64_t>(kWarmSizes) : kWarmSizesOfOthers,
      memory, registry);
  if (status.ok()) status = WarmCopies(lease, memory, staging);
  if (!status.ok()) return status;
  return CudaStatus(cudaStreamSynchronize(lease.stream.get()),
                    "cudaStreamSynchronize, to warm up");
}

}  // namespace gemmd
