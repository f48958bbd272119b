// small_tiles: for products too small to fill the chip with large tiles, alone
// or by the thousand. 64 threads compute 32 x 32 of C, 4 x 4 a thread, so that
// a small product has many blocks, and an SM many products. Tiles of A and B
// come by cp.async, which needs no registers on the way, three stages ahead;
// what is read along k is turned on the way into shared memory, an element at a
// time.
//
//   stage   t       | t+1     | t+2     | t+3
//   cp.async  [t+3] |   [t+4] |   [t+5] |   ...      one barrier a stage
//   compute   [t]   |   [t+1] |   [t+2] |   ...
//
// It sums k in order, one FMA at a time: the bits of every step of the ladder.

#include "kernels/cuda/find_tile.cuh"
#include "kernels/cuda/ladder.h"
#include "kernels/cuda/table_sgemm.h"

namespace gemmd {
namespace {

constexpr int kTile = 32;
constexpr int kThreadTile = 4;
constexpr int kThreads = 64;
constexpr int kStepK = 16;
constexpr int kStages = 4;
constexpr int kRow = kTile + 4;  // of a tile in shared memory, padded: what
                                 // eight k of four outer write lies in 32 banks
static_assert(kThreads * kThreadTile * kThreadTile == kTile * kTile);

// Copies `kBytes` to shared memory, or zeros where `inside` is false; `from` is
// an address that may be read in any case.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(float* to, const float* from,
                                          bool inside) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = inside ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared),
                 "l"(from), "r"(bytes)
                 : "memory");
  }
}

// This thread's share of an operand's tiles [kStepK][kTile], one after the
// other along k. `outer` is m of A or n of B, as in tile.cuh.
template <bool kAlongK, bool kVector>
class AsyncReader {
 public:
  __device__ AsyncReader(const float* x, int64_t ld, int64_t origin,
                         int64_t extent, int64_t k)
      : x_(x), ld_(ld), left_(k) {
    if constexpr (kAlongK) {
      // Rows past the extent only reach rows of C that are not there.
      first_ = FirstK();
      last_row_ =
          static_cast<int>(min(extent - 1 - origin, int64_t{kTile - 1}));
      x_ += origin * ld;
    } else {
      first_ = FirstK() * ld + origin + FirstOuter();
      inside_ = origin + FirstOuter() < extent;
    }
  }

  // Starts the copy of the next tile; past k its elements are zeros.
  __device__ void Copy(float* tile) {
    constexpr int kWidth = kVector ? 4 : 1;  // elements a copy
    float* to = tile + FirstK() * kRow + FirstOuter();
    if constexpr (kAlongK) {
#pragma unroll
      for (int o = 0; o < kTile; o += kThreads / 8) {
        const float* row = x_ + min(o + FirstOuter(), last_row_) * ld_ + first_;
#pragma unroll
        for (int k = 0; k < kStepK; k += 8) {
          const bool inside = FirstK() + k < left_;
          CopyAsync<4>(to + k * kRow + o, inside ? row + k : x_, inside);
        }
      }
      first_ += kStepK;
    } else {
      constexpr int kRows = kThreads * kWidth / kTile;
#pragma unroll
      for (int k = 0; k < kStepK; k += kRows) {
        const bool inside = inside_ && FirstK() + k < left_;
        CopyAsync<4 * kWidth>(to + k * kRow,
                              inside ? x_ + first_ + k * ld_ : x_, inside);
      }
      first_ += kStepK * ld_;
    }
    left_ -= kStepK;
  }

 private:
  // Along k: eight threads side by side. Else: a row of the tile.
  static constexpr int kAcross = kAlongK ? 8 : kVector ? kTile / 4 : kTile;
  __device__ static int FirstK() {
    return kAlongK ? threadIdx.x % kAcross : threadIdx.x / kAcross;
  }
  __device__ static int FirstOuter() {
    return kAlongK ? threadIdx.x / kAcross
                   : threadIdx.x % kAcross * (kTile / kAcross);
  }

  const float* x_;
  const int64_t ld_;
  int64_t left_;   // of k, from the next tile on
  int64_t first_;  // from x_ to this thread's first element of the next tile
  int last_row_;   // kAlongK: of the tile, inside
  bool inside_;    // else: whether this thread's columns are
};

template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
__global__ void __launch_bounds__(kThreads)
    SmallTiles(const __grid_constant__ ProblemTable<kCapacity> table) {
  __shared__ alignas(16) float stages[kStages][2][kStepK * kRow];
  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTile, kTile>(p);
  AsyncReader<!kTransposeA, kVector> a_reader(p.a, p.lda, origin.row, p.m, p.k);
  AsyncReader<kTransposeB, kVector> b_reader(p.b, p.ldb, origin.col, p.n, p.k);
  const int steps = static_cast<int>((p.k + kStepK - 1) / kStepK);

  // An empty group past the last step keeps the count of groups.
  const auto copy = [&](int step) {
    if (step < steps) {
      a_reader.Copy(stages[step % kStages][0]);
      b_reader.Copy(stages[step % kStages][1]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) copy(step);

  // 8 threads along m, 4 along n, in z-order: a 16-byte load of either operand
  // touches each bank once. The second warp has the right half.
  const int row = threadIdx.x / 2 % 8 * kThreadTile;
  const int col =
      (threadIdx.x / 32 * 4 + threadIdx.x % 32 / 16 * 2 + threadIdx.x % 2) *
      kThreadTile;
  float sums[kThreadTile][kThreadTile] = {};
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // the stage is there, and the one before it free
    copy(step + kStages - 1);
    const float* a_tile = stages[step % kStages][0] + row;
    const float* b_tile = stages[step % kStages][1] + col;
#pragma unroll
    for (int k = 0; k < kStepK; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(a_tile + k * kRow);
      const float4 b = *reinterpret_cast<const float4*>(b_tile + k * kRow);
      const float as[kThreadTile] = {a.x, a.y, a.z, a.w};
      const float bs[kThreadTile] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadTile; ++j) {
          sums[i][j] = fmaf(as[i], bs[j], sums[i][j]);
        }
      }
    }
  }

  // C = alpha * sums + beta * C, as far as it exists.
#pragma unroll
  for (int i = 0; i < kThreadTile; ++i) {
    if (origin.row + row + i >= p.m) break;
    float* at = p.c + (origin.row + row + i) * p.ldc + origin.col + col;
    const auto left = static_cast<int>(min(p.n - origin.col - col, int64_t{4}));
    float old[kThreadTile] = {};
    if (kVector && left == 4) {
      float4* four = reinterpret_cast<float4*>(at);
      if (p.beta != 0) *reinterpret_cast<float4*>(old) = *four;
      *four = {fmaf(p.beta, old[0], p.alpha * sums[i][0]),
               fmaf(p.beta, old[1], p.alpha * sums[i][1]),
               fmaf(p.beta, old[2], p.alpha * sums[i][2]),
               fmaf(p.beta, old[3], p.alpha * sums[i][3])};
      continue;
    }
#pragma unroll
    for (int j = 0; j < kThreadTile; ++j) {
      if (j >= left) continue;
      if (p.beta != 0) old[j] = at[j];
      at[j] = fmaf(p.beta, old[j], p.alpha * sums[i][j]);
    }
  }
}

struct SmallTilesFunctions {
  static constexpr int kTileM = kTile;
  static constexpr int kTileN = kTile;
  static constexpr int kBlockX = kThreads;
  static constexpr int kBlockY = 1;

  template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
  static const void* Function() {
    return reinterpret_cast<const void*>(
        &SmallTiles<kTransposeA, kTransposeB, kVector, kCapacity>);
  }
};

}  // namespace

MadeKernel MakeSmallTilesSgemm(KernelInfo info) {
  return MakeTableSgemm(std::move(info), FunctionsOf<SmallTilesFunctions>());
}

}  // namespace gemmd
