#include <algorithm>

#include "tests/bench/kernel_bench/ceiling.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {
namespace {

constexpr int kThreads = 256;
constexpr int kChains = 16;  // independent, to hide the latency of one
constexpr int kSteps = 1 << 15;

__global__ void __launch_bounds__(kThreads)
    FfmaOnly(float a, float b, float* result) {
  float x[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) x[i] = threadIdx.x + i;
#pragma unroll 16
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = fmaf(x[i], a, b);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += x[i];
  if (sum == -1.0f) *result = sum;  // never, but the compiler cannot know
}

// The shortest of `runs` runs of `work`, in seconds, after one to warm up.
template <typename Work>
double ShortestSeconds(int runs, Work work) {
  work();
  double shortest = 1e30;
  for (int i = 0; i < runs; ++i) {
    CudaEvent start;
    CudaEvent stop;
    start.Record(nullptr);
    work();
    stop.Record(nullptr);
    shortest = std::min(shortest, stop.MicrosecondsSince(start) * 1e-6);
  }
  return shortest;
}

}  // namespace

double MeasureFfmaFlops() {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const int blocks = device.multiProcessorCount * 8 * 4;
  const auto result = AllocateOnDevice<float>(1);
  const double seconds = ShortestSeconds(10, [&] {
    FfmaOnly<<<blocks, kThreads>>>(0.999f, 0.001f, result.get());
    Check(cudaGetLastError(), "FfmaOnly");
  });
  return 2.0 * blocks * kThreads * kChains * kSteps / seconds;
}

double MeasureCopyBytesPerSecond() {
  const size_t bytes = size_t{4} << 30;
  const auto from = AllocateOnDevice<char>(bytes);
  const auto to = AllocateOnDevice<char>(bytes);
  Check(cudaMemset(from.get(), 1, bytes), "cudaMemset");
  const double seconds = ShortestSeconds(10, [&] {
    Check(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice,
                          nullptr),
          "cudaMemcpyAsync");
  });
  return 2.0 * bytes / seconds;
}

}  // namespace gemmd
