// Owners of what the CUDA runtime hands out, for programs that end on an error.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace gemmd {

// Ends the program, saying where, unless a call succeeded: a benchmark has no
// better way.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "kernel_bench: %s: %s\n", what,
               cudaGetErrorString(error));
  std::exit(1);
}

struct CudaFree {
  void operator()(void* p) const { cudaFree(p); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T[], CudaFree>;

template <typename T>
DeviceArray<T> AllocateOnDevice(size_t count) {
  void* p = nullptr;
  Check(cudaMalloc(&p, count * sizeof(T)), "cudaMalloc");
  return DeviceArray<T>(static_cast<T*>(p));
}

class CudaEvent {
 public:
  CudaEvent() { Check(cudaEventCreate(&event_), "cudaEventCreate"); }
  CudaEvent(CudaEvent&& other) noexcept : event_(other.event_) {
    other.event_ = nullptr;
  }
  ~CudaEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
  }
  void Record(cudaStream_t stream) {
    Check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  // Microseconds from `start` to this; waits for this.
  double MicrosecondsSince(const CudaEvent& start) const {
    Check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, start.event_, event_),
          "cudaEventElapsedTime");
    return 1000.0 * ms;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace gemmd
