#include "kernels/cuda/cuda_kernels.h"

namespace gemmd {
namespace {

KernelInfo DeviceKernel(std::string name, Fusion fusion,
                        std::string description,
                        Precision precision = Precision::kFp32) {
  return {.name = std::move(name),
          .description = std::move(description),
          .precision = precision,
          .space = MemorySpace::kDevice,
          .batch_invariant = true,
          .fusion = fusion};
}

}  // namespace

std::vector<KernelInfo> CudaKernelInfos() {
  return {
      DeviceKernel("naive", Fusion::kAnyShapes,
                   "CUDA, one thread an element, operands from global memory"),
      DeviceKernel("block_tiled", Fusion::kAnyShapes,
                   "CUDA, 128 x 128 tiles in shared memory, 8 x 8 a thread"),
      DeviceKernel("conflict_free", Fusion::kAnyShapes,
                   "CUDA, block_tiled with A transposed in shared memory, so "
                   "that every shared load is one 128-bit access"),
      DeviceKernel("double_buffered", Fusion::kAnyShapes,
                   "CUDA, conflict_free that loads the next tile while it "
                   "computes this one"),
      DeviceKernel(
          "small_tiles", Fusion::kAnyShapes,
          "CUDA, small tiles by cp.async: for small products, alone or "
          "in batches, equal or mixed"),
      DeviceKernel("skinny", Fusion::kSameB,
                   "CUDA, up to 64 rows against a large B in one pass over it, "
                   "whichever requests the rows come from"),
      DeviceKernel("cublas", Fusion::kNone,
                   "CUDA, cuBLAS cublasSgemm, never TF32"),
      DeviceKernel("sm90_ffma", Fusion::kNone,
                   "CUDA, Hopper: stream-K and cluster split-K, operands "
                   "through the copy engine"),
      DeviceKernel("sm90_bf16x6", Fusion::kNone,
                   "CUDA, Hopper: FP32 from six products of BF16 parts on "
                   "tensor cores; values they cannot hold go to sm90_ffma",
                   Precision::kFp32Emulated),
  };
}

}  // namespace gemmd
