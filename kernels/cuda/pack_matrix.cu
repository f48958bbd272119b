#include <algorithm>

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/pack_matrix.h"

namespace gemmd {
namespace {

// Launched to overlap with the stream's launch before it, as the kernels that
// follow it are (sm90_pipeline.cuh); older devices have no such launches.
__device__ __forceinline__ void BeginOverlapping() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

constexpr int kTile = 32;
constexpr int kRows = 8;  // of threads; each does four rows of a tile

// Tile by tile; through shared memory, so that reads and writes both run along
// rows. Each thread has four loads under way.
__global__ void __launch_bounds__(kTile* kRows)
    Transpose(const float* from, int64_t from_ld, int64_t rows, int64_t cols,
              float* to, int64_t to_ld, const uint32_t* only_if) {
  BeginOverlapping();
  if (only_if != nullptr && *only_if == 0) return;
  __shared__ float tile[kTile][kTile + 1];
  const int64_t col0 = int64_t{blockIdx.x} * kTile;
  for (int64_t row0 = int64_t{blockIdx.y} * kTile; row0 < rows;
       row0 += int64_t{gridDim.y} * kTile) {
#pragma unroll
    for (int i = 0; i < kTile; i += kRows) {
      const int64_t row = row0 + i + threadIdx.y;
      const int64_t col = col0 + threadIdx.x;
      if (row < rows && col < cols) {
        tile[i + threadIdx.y][threadIdx.x] = from[row * from_ld + col];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; i += kRows) {
      const int64_t row = col0 + i + threadIdx.y;
      const int64_t col = row0 + threadIdx.x;
      if (row < cols && col < rows) {
        to[row * to_ld + col] = tile[threadIdx.x][i + threadIdx.y];
      }
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kTile* kRows)
    Copy(const float* from, int64_t from_ld, int64_t rows, int64_t cols,
         float* to, int64_t to_ld, const uint32_t* only_if) {
  BeginOverlapping();
  if (only_if != nullptr && *only_if == 0) return;
  constexpr int kEach = 8;  // rows of a thread, loaded before one is stored
  const int64_t col = int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (col >= cols) return;
  for (int64_t row0 = int64_t{blockIdx.y} * kRows * kEach + threadIdx.y;
       row0 < rows; row0 += int64_t{gridDim.y} * kRows * kEach) {
    float values[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t row = row0 + i * kRows;
      if (row < rows) values[i] = from[row * from_ld + col];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t row = row0 + i * kRows;
      if (row < rows) to[row * to_ld + col] = values[i];
    }
  }
}

__global__ void __launch_bounds__(kTile* kRows)
    Scale(float* c, int64_t ldc, int64_t m, int64_t n, float beta) {
  const int64_t col = int64_t{blockIdx.x} * kTile + threadIdx.x;
  if (col >= n) return;
  for (int64_t row = int64_t{blockIdx.y} * kRows + threadIdx.y; row < m;
       row += int64_t{gridDim.y} * kRows) {
    float* at = c + row * ldc + col;
    *at = beta == 0 ? 0.0f : beta * *at;
  }
}

// Blocks for a [rows, cols] matrix, `rows_a_block` of its rows each.
dim3 Grid(int64_t rows, int64_t cols, int rows_a_block) {
  constexpr int64_t kMaxGridY = 65535;
  return dim3(static_cast<unsigned>((cols + kTile - 1) / kTile),
              static_cast<unsigned>(std::min(
                  (rows + rows_a_block - 1) / rows_a_block, kMaxGridY)));
}

}  // namespace

absl::Status PackMatrix(const float* from, int64_t from_ld, int64_t rows,
                        int64_t cols, bool transpose, float* to, int64_t to_ld,
                        CUstream_st* stream, const uint32_t* only_if) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = Grid(rows, cols, transpose ? kTile : kRows * 8);
  config.blockDim = dim3(kTile, kRows);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return CudaStatus(
      cudaLaunchKernelEx(&config, transpose ? &Transpose : &Copy, from, from_ld,
                         rows, cols, to, to_ld, only_if),
      "launch of PackMatrix");
}

absl::Status ScaleMatrix(float* c, int64_t ldc, int64_t m, int64_t n,
                         float beta, CUstream_st* stream) {
  if (m == 0 || n == 0) return absl::OkStatus();
  Scale<<<Grid(m, n, kRows * 4), dim3(kTile, kRows), 0, stream>>>(c, ldc, m, n,
                                                                  beta);
  return CudaStatus(cudaGetLastError(), "launch of ScaleMatrix");
}

}  // namespace gemmd
