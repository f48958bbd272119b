#include "kernels/cuda/cuda_kernels.h"

namespace gemmd {

std::vector<KernelEntry> CudaKernelEntries(int) {
  std::vector<KernelEntry> entries;
  for (KernelInfo& info : CudaKernelInfos()) {
    entries.push_back({.info = std::move(info),
                       .kernel = nullptr,
                       .unavailable_reason = "this build has no CUDA"});
  }
  return entries;
}

}  // namespace gemmd
