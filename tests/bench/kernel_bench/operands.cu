#include <algorithm>

#include "tests/bench/kernel_bench/operands.h"

namespace gemmd {
namespace {

constexpr int64_t kAlignment = 64;  // floats
constexpr int kMaxSets = 256;

int64_t Padded(int64_t floats) {
  return (floats + kAlignment - 1) / kAlignment * kAlignment;
}

// An element's value follows from the seed and its index alone.
__device__ float Uniform(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31f;
}

__global__ void Fill(float* x, int64_t size, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += step) {
    x[i] = Uniform((seed << 40) + i);
  }
}

}  // namespace

Operands::Operands(const BenchCase& c, uint32_t seed) {
  const GemmShape& s = c.shape;
  const int64_t a = Padded(s.m * s.k);
  const int64_t b = Padded(s.k * s.n);
  floats_ = s.m * s.n;
  const int64_t product = a + b + Padded(floats_);
  const int64_t set_bytes = product * c.batch * int64_t{sizeof(float)};
  int device = 0;
  int l2_bytes = 0;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device),
        "cudaDeviceGetAttribute");
  const int sets = static_cast<int>(
      std::clamp<int64_t>(2 * l2_bytes / set_bytes + 1, 1, kMaxSets));

  const int64_t size = product * c.batch * sets;
  memory_ = AllocateOnDevice<float>(size);
  Fill<<<4096, 256>>>(memory_.get(), size, seed);
  Check(cudaGetLastError(), "Fill");
  Check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  float* next = memory_.get();
  for (int i = 0; i < sets; ++i) {
    sets_.emplace_back();
    for (int j = 0; j < c.batch; ++j, next += product) {
      sets_[i].push_back({.shape = s,
                          .a = next,
                          .lda = StoredColsA(s),
                          .b = next + a,
                          .ldb = StoredColsB(s),
                          .c = next + a + b,
                          .ldc = s.n});
    }
  }
}

void Operands::PoisonFirstSet() {
  for (const SgemmArgs& args : sets_[0]) {
    Check(cudaMemset(args.c, 0xff, floats_ * sizeof(float)), "cudaMemset");
  }
}

}  // namespace gemmd
