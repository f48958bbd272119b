// Owners of CUDA's handles: move-only, gone with their scope, never shared.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "server/execute/slab_staging_pool.h"

namespace gemmd {

struct StreamDeleter {
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
};
using CudaStream = std::unique_ptr<CUstream_st, StreamDeleter>;

struct EventDeleter {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
using CudaEvent = std::unique_ptr<CUevent_st, EventDeleter>;

struct DeviceDeleter {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
using DeviceMemory = std::unique_ptr<std::byte, DeviceDeleter>;

// Makes a device the calling thread's from here on. The one before is not put
// back: where it was none, that would make a context on device 0.
absl::Status UseDevice(int ordinal);

// Each of the present device; INTERNAL naming the call that failed. The stream
// does not synchronise with the default stream; the event takes the time.
absl::StatusOr<CudaStream> MakeStream();
absl::StatusOr<CudaEvent> MakeEvent();
absl::StatusOr<DeviceMemory> MakeDeviceMemory(size_t bytes);

// Pinned, zeroed host memory, the same for every device. `device` becomes the
// calling thread's, and is the one whose context registers it. Mapped, touched
// and then registered, rather than had from cudaHostAlloc: that takes 610 ms a
// GiB inside the driver, registering touched memory 43 ms.
absl::StatusOr<SlabMemory> MakePinnedMemory(int device, size_t bytes);

}  // namespace gemmd
