#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/sampled_check.h"
#include "kernels/reference.h"

namespace gemmd {
namespace {

constexpr int kSamples = 1024;

__device__ uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

__global__ void Fill(float* x, int64_t size) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += step) {
    x[i] = static_cast<float>(static_cast<int32_t>(Mix(i) >> 32)) * 0x1p-31f;
  }
}

// A warp an element: the largest share of relative * |A||B| + absolute that an
// element's error is, in the order of unsigned integers; above all of them for
// NaN.
__global__ void Check(SgemmArgs p, double relative, double absolute,
                      uint32_t* worst) {
  const int sample = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int64_t size = p.shape.m * p.shape.n;
  const int64_t element =
      size <= kSamples
          ? sample
          : static_cast<int64_t>(Mix(sample) % static_cast<uint64_t>(size));
  if (sample >= kSamples || element >= size) return;
  const int64_t i = element / p.shape.n;
  const int64_t j = element % p.shape.n;
  double sum = 0;
  double magnitude = 0;
  for (int64_t k = threadIdx.x % 32; k < p.shape.k; k += 32) {
    const float a =
        p.shape.transpose_a ? p.a[k * p.lda + i] : p.a[i * p.lda + k];
    const float b =
        p.shape.transpose_b ? p.b[j * p.ldb + k] : p.b[k * p.ldb + j];
    sum += double{a} * b;
    magnitude += fabs(double{a} * b);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(~0u, sum, offset);
    magnitude += __shfl_xor_sync(~0u, magnitude, offset);
  }
  if (threadIdx.x % 32 != 0) return;
  const double error = fabs(double{p.c[i * p.ldc + j]} - sum);
  const auto share =
      static_cast<float>(error / (relative * magnitude + absolute));
  atomicMax(worst, isnan(share) ? ~0u : __float_as_uint(share));
}

}  // namespace

absl::Status FillUniform(float* x, int64_t size, CUstream_st* stream) {
  Fill<<<4096, 256, 0, stream>>>(x, size);
  return CudaStatus(cudaGetLastError(), "launch of FillUniform");
}

absl::Status CheckSamples(const SgemmArgs& product, uint32_t* worst,
                          CUstream_st* stream) {
  const double absolute = Fp32ErrorBound(product.shape.k, 0);
  const double relative = Fp32ErrorBound(product.shape.k, 1) - absolute;
  absl::Status status = CudaStatus(
      cudaMemsetAsync(worst, 0, sizeof(*worst), stream), "cudaMemsetAsync");
  if (!status.ok()) return status;
  Check<<<kSamples / 8, 256, 0, stream>>>(product, relative, absolute, worst);
  return CudaStatus(cudaGetLastError(), "launch of CheckSamples");
}

}  // namespace gemmd
