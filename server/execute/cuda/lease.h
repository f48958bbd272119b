// What one batch at a time runs on.

#pragma once

#include "absl/status/statusor.h"
#include "kernels/cuda/cublas_library.h"
#include "server/execute/cuda/handles.h"

namespace gemmd {

// A stream with its cuBLAS handle, that handle's workspace, and the events that
// part a batch's stages. Belongs to one batch from its first copy to its last
// event.
struct Lease {
  CudaStream stream;
  DeviceMemory cublas_workspace;  // before the handle, which uses it to the end
  CublasHandle cublas;            // null where cuBLAS is not there
  CudaEvent started;
  CudaEvent copied_in;
  CudaEvent computed;
  CudaEvent copied_out;
};

// Of the present device.
absl::StatusOr<Lease> MakeLease();

}  // namespace gemmd
