// issue_costs: what a shared-memory load costs a stream of FFMAs, in cycles of
// a multiprocessor's sub-partition. The figures behind kernels/README.md,
// "Ahead of cuBLAS".
//
// Each thread does 128 FFMAs on fixed operands again and again, in an order
// without register-bank conflicts, and some loads whose results nobody uses.
// Two warps share a sub-partition. ptxas may place the registers badly: a
// figure stands for its machine code (cuobjdump --dump-sass), not for its
// source.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr int kRows = 16;
constexpr int kCols = 8;
constexpr int kRounds = 4;  // of 128 FFMAs, unrolled
constexpr int kThreads = 256;
constexpr int kIterations = 3000;

__device__ __forceinline__ void Ffma(float& d, float a, float b) {
  asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(d) : "f"(a), "f"(b));
}

__device__ __forceinline__ void LoadFour(float* to, uint32_t from) {
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from));
}

template <int kBytes>
__device__ __forceinline__ void Load(uint32_t from) {
  float unused[4];
  if constexpr (kBytes == 4) {
    asm volatile("ld.volatile.shared.f32 %0, [%1];"
                 : "=f"(unused[0])
                 : "r"(from));
  } else {
    LoadFour(unused, from);
  }
}

// kLoads loads of kBytes each, every 128 FFMAs.
template <int kLoads, int kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    Stream(float* sums, long long* cycles) {
  __shared__ float shared[8192];
  for (int i = threadIdx.x; i < 8192; i += kThreads) shared[i] = 1e-3f * i;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const auto from = static_cast<uint32_t>(
      __cvta_generic_to_shared(shared + (lane / 2 % 8) * 4));
  float a[2][kRows];
  float b[2][kCols];
  float sum[kRows][kCols] = {};
  // Sixteen bytes at a time, which gives the operands of a four alternating
  // banks.
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int i = 0; i < kRows; i += 4) {
      LoadFour(&a[s][i], from + (s * 64 + i) * 16);
    }
#pragma unroll
    for (int j = 0; j < kCols; j += 4) {
      LoadFour(&b[s][j], from + 16384 + (s * 64 + j) * 32);
    }
  }
  const long long start = clock64();
#pragma unroll 1
  for (int iteration = 0; iteration < kIterations; ++iteration) {
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        Load<kBytes>(from + (round * kLoads + l) * 512);
      }
      // Two columns at a time, down and up the rows: of the three operands of
      // an FFMA, two are those of its neighbours.
#pragma unroll
      for (int j = 0; j < kCols; j += 2) {
#pragma unroll
        for (int step = 0; step < kRows; ++step) {
          const int i = j % 4 == 0 ? step : kRows - 1 - step;
          const int s = round % 2;
          Ffma(sum[i][j + i % 2], a[s][i], b[s][j + i % 2]);
          Ffma(sum[i][j + 1 - i % 2], a[s][i], b[s][j + 1 - i % 2]);
        }
      }
    }
  }
  const long long end = clock64();
  float total = 0;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) total += sum[i][j];
  }
  sums[blockIdx.x * kThreads + threadIdx.x] = total;
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - start;
}

// Prints a row; false if the launch failed.
template <int kLoads, int kBytes>
bool Measure(int blocks, float* sums, long long* cycles) {
  for (int i = 0; i < 3; ++i) {
    Stream<kLoads, kBytes><<<blocks, kThreads>>>(sums, cycles);
  }
  std::vector<long long> each(blocks);
  const cudaError_t error = cudaMemcpy(
      each.data(), cycles, blocks * sizeof(long long), cudaMemcpyDeviceToHost);
  if (error != cudaSuccess) {
    std::fprintf(stderr, "issue_costs: %s\n", cudaGetErrorString(error));
    return false;
  }
  std::nth_element(each.begin(), each.begin() + blocks / 2, each.end());
  constexpr double kWarpsOfASubPartition = kThreads / 32 / 4;
  std::printf("%d loads of %2d bytes: %.1f cycles for 128 FFMAs\n", kLoads,
              kBytes,
              static_cast<double>(each[blocks / 2]) /
                  (kIterations * kRounds * kWarpsOfASubPartition));
  return true;
}

}  // namespace

int main() {
  int blocks = 0;
  float* sums = nullptr;
  long long* cycles = nullptr;
  if (cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0) !=
          cudaSuccess ||
      cudaMalloc(&sums, blocks * kThreads * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&cycles, blocks * sizeof(long long)) != cudaSuccess) {
    std::fprintf(stderr, "issue_costs: no CUDA device\n");
    return 1;
  }
  const bool done = Measure<0, 16>(blocks, sums, cycles) &&
                    Measure<4, 4>(blocks, sums, cycles) &&
                    Measure<1, 16>(blocks, sums, cycles) &&
                    Measure<3, 16>(blocks, sums, cycles);
  return done ? 0 : 1;
}
