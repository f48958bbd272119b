// Device memory with an owner, for what measures and tests kernels. A server
// has its own, in pools (server/execute/cuda/handles.h).

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {

struct DeviceBufferDeleter {
  void operator()(void* p) const { cudaFree(p); }
};
using DeviceBuffer = std::unique_ptr<void, DeviceBufferDeleter>;

// `bytes` of the current device, whatever was there before; INTERNAL if it has
// no more.
inline absl::StatusOr<DeviceBuffer> AllocateDeviceBuffer(size_t bytes) {
  void* p = nullptr;
  absl::Status status = CudaStatus(cudaMalloc(&p, bytes), "cudaMalloc");
  if (!status.ok()) return status;
  return DeviceBuffer(p);
}

}  // namespace gemmd
