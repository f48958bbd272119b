// A CUDA runtime call's outcome as a status that names the call.

#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace gemmd {

// OK for cudaSuccess, else INTERNAL: "cudaMalloc: out of memory
// (cudaErrorMemoryAllocation)".
inline absl::Status CudaStatus(cudaError_t error, absl::string_view api) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(api, ": ", cudaGetErrorString(error),
                                          " (", cudaGetErrorName(error), ")"));
}

}  // namespace gemmd
