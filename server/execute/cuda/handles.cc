#include "server/execute/cuda/handles.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {

absl::Status UseDevice(int ordinal) {
  return CudaStatus(cudaSetDevice(ordinal), "cudaSetDevice");
}

absl::StatusOr<CudaStream> MakeStream() {
  cudaStream_t stream = nullptr;
  absl::Status status =
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags");
  if (!status.ok()) return status;
  return CudaStream(stream);
}

absl::StatusOr<CudaEvent> MakeEvent() {
  cudaEvent_t event = nullptr;
  absl::Status status = CudaStatus(cudaEventCreate(&event), "cudaEventCreate");
  if (!status.ok()) return status;
  return CudaEvent(event);
}

absl::StatusOr<DeviceMemory> MakeDeviceMemory(size_t bytes) {
  void* memory = nullptr;
  absl::Status status = CudaStatus(cudaMalloc(&memory, bytes), "cudaMalloc");
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat(status.message(), ", for ", bytes, " bytes"));
  }
  return DeviceMemory(static_cast<std::byte*>(memory));
}

absl::StatusOr<SlabMemory> MakePinnedMemory(int device, size_t bytes) {
  if (absl::Status status = UseDevice(device); !status.ok()) return status;
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", bytes, " bytes: errno ", errno));
  }
  SlabMemory mapped(static_cast<std::byte*>(base),
                    [bytes](std::byte* data) { munmap(data, bytes); });
  madvise(base, bytes, MADV_HUGEPAGE);
  std::memset(base, 0, bytes);
  absl::Status status =
      CudaStatus(cudaHostRegister(base, bytes, cudaHostRegisterPortable),
                 "cudaHostRegister");
  if (!status.ok()) return status;
  mapped.get_deleter() = [bytes](std::byte* data) {
    cudaHostUnregister(data);
    munmap(data, bytes);
  };
  return mapped;
}

}  // namespace gemmd
