// The kernels that run on a CUDA device, as the registry sees them. Needs no
// CUDA header: a build without CUDA lists them too, with the reason.

#pragma once

#include <vector>

#include "kernels/registry.h"
#include "kernels/sgemm.h"

namespace gemmd {

// What every CUDA kernel of the project is, in the order of the ladder.
std::vector<KernelInfo> CudaKernelInfos();

// An entry for each of CudaKernelInfos(), with the kernel where CUDA device
// `device` runs it, which is then the calling thread's current one. Two files
// define it and CMake picks one: cuda_kernels.cc looks at the device;
// cuda_kernels_absent.cc is for builds without CUDA.
std::vector<KernelEntry> CudaKernelEntries(int device);

}  // namespace gemmd
