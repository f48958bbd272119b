#include "tests/bench/batch_bench/stream_read.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;  // in flight, of a thread

__global__ void __launch_bounds__(kThreads, 4)
    Read(const float4* x, int64_t count, float* sink) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  float sum = 0;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kLoads - 1) * step < count; i += kLoads * step) {
    float4 v[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) v[j] = __ldcs(x + i + j * step);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += v[j].x + v[j].y + v[j].z + v[j].w;
  }
  for (; i < count; i += step) {
    const float4 v = __ldcs(x + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 1e30f) *sink = sum;  // keeps the loads
}

}  // namespace

void StreamRead(const float* x, int64_t floats, float* sink,
                cudaStream_t stream) {
  int device = 0;
  int sms = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  Read<<<2 * sms, kThreads, 0, stream>>>(reinterpret_cast<const float4*>(x),
                                         floats / 4, sink);
  Check(cudaGetLastError(), "Read");
}

}  // namespace gemmd
