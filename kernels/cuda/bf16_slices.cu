#include <algorithm>

#include "kernels/cuda/bf16_slices.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;                        // a block does 64 x 64
constexpr uint32_t kTiny = (127u - 110u) << 23;  // the bits of 2^-110

struct Slices {
  __nv_bfloat16 part[3];
};

__device__ __forceinline__ Slices Split(float x) {
  Slices s;
  s.part[0] = __float2bfloat16_rn(x);
  float rest = x - __bfloat162float(s.part[0]);
  s.part[1] = __float2bfloat16_rn(rest);
  rest -= __bfloat162float(s.part[1]);
  s.part[2] = __float2bfloat16_rn(rest);
  return s;
}

// What one thread has seen; Report adds it up over the block.
struct Seen {
  uint32_t largest = 0;
  bool tiny = false;

  __device__ __forceinline__ void Add(float x) {
    const uint32_t bits = __float_as_uint(x) & 0x7fffffff;
    largest = max(largest, bits);
    tiny |= bits != 0 && bits < kTiny;
  }
  __device__ __forceinline__ void Report(Bf16Findings* findings) const {
    const uint32_t of_warp = __reduce_max_sync(~0u, largest);
    if (threadIdx.x % 32 == 0 && of_warp > findings->largest) {
      atomicMax(&findings->largest, of_warp);
    }
    if (__any_sync(~0u, tiny) && threadIdx.x % 32 == 0) findings->has_tiny = 1;
  }
};

// A block's 64 x 64 tile goes through shared memory in the direction in which
// it is read, and out of it in the direction in which it is written: both run
// along rows.
template <bool kTranspose, bool kVector>
__global__ void __launch_bounds__(kThreads)
    SplitTile(const float* from, int64_t from_ld, int64_t rows, int64_t cols,
              __nv_bfloat16* to, int64_t to_ld, Bf16Findings* findings) {
  __shared__ float tile[kTile][kTile + (kTranspose ? 1 : 4)];
  Seen seen;
  const int64_t col0 = int64_t{blockIdx.x} * kTile;
  const int64_t out_rows = kTranspose ? cols : rows;
  const int64_t out_cols = kTranspose ? rows : cols;
  for (int64_t row0 = int64_t{blockIdx.y} * kTile; row0 < rows;
       row0 += int64_t{gridDim.y} * kTile) {
    // In: 16 threads a row, four neighbours each.
#pragma unroll
    for (int i = 0; i < kTile; i += kThreads / 16) {
      const int r = i + threadIdx.x / 16;
      const int c = threadIdx.x % 16 * 4;
      const int64_t row = row0 + r;
      const float* at = from + row * from_ld + col0 + c;
      float x[4] = {};
      if (row < rows) {
        if (kVector && col0 + c + 3 < cols) {
          const float4 four = *reinterpret_cast<const float4*>(at);
          x[0] = four.x;
          x[1] = four.y;
          x[2] = four.z;
          x[3] = four.w;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (col0 + c + e < cols) x[e] = at[e];
          }
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        seen.Add(x[e]);
        tile[r][c + e] = x[e];
      }
    }
    __syncthreads();
    // Out: 8 threads a row of 64, eight neighbours each, for each of the parts.
    const int64_t out_row0 = kTranspose ? col0 : row0;
    const int64_t out_col0 = kTranspose ? row0 : col0;
#pragma unroll
    for (int i = 0; i < kTile; i += kThreads / 8) {
      const int r = i + threadIdx.x / 8;
      const int c = threadIdx.x % 8 * 8;
      const int64_t row = out_row0 + r;
      const int64_t col = out_col0 + c;
      if (row >= out_rows || col >= out_cols) continue;
      alignas(16) __nv_bfloat16 parts[3][8];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const Slices s = Split(kTranspose ? tile[c + e][r] : tile[r][c + e]);
#pragma unroll
        for (int p = 0; p < 3; ++p) parts[p][e] = s.part[p];
      }
      // Rows of `to` are padded to eights: a whole store never leaves its row.
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        *reinterpret_cast<uint4*>(to + (p * out_rows + row) * to_ld + col) =
            *reinterpret_cast<const uint4*>(parts[p]);
      }
    }
    __syncthreads();
  }
  seen.Report(findings);
}

}  // namespace

absl::Status SplitIntoBf16(const float* from, int64_t from_ld, int64_t rows,
                           int64_t cols, bool transpose, __nv_bfloat16* to,
                           int64_t to_ld, Bf16Findings* findings,
                           CUstream_st* stream) {
  const bool vector =
      reinterpret_cast<uintptr_t>(from) % 16 == 0 && from_ld % 4 == 0;
  const auto kernel =
      transpose ? (vector ? &SplitTile<true, true> : &SplitTile<true, false>)
                : (vector ? &SplitTile<false, true> : &SplitTile<false, false>);
  const dim3 grid(static_cast<unsigned>((cols + kTile - 1) / kTile),
                  static_cast<unsigned>(
                      std::min<int64_t>((rows + kTile - 1) / kTile, 65535)));
  kernel<<<grid, kThreads, 0, stream>>>(from, from_ld, rows, cols, to, to_ld,
                                        findings);
  return CudaStatus(cudaGetLastError(), "launch of SplitIntoBf16");
}

}  // namespace gemmd
