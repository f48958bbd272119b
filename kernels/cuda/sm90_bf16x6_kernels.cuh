// FP32 products on BF16 tensor cores: each operand comes as three BF16 parts
// (bf16_slices.h), and six of the nine products of parts are added up:
//
//              B: high  middle  low
//   A: high         6      5     3        computed in the order 1 .. 6, the
//      middle       4      1              smallest first; what is left out is
//      low          2                     below 2^-26 of the product
//
// The tensor core truncates its sums to FP32, once an instruction. So that this
// stays below what rounding costs FP32, the sums are moved, rounded, into FP32
// sums of our own after each 64 of k, and within those 64 all of 1 .. 5 come
// before 6: only the four instructions of 6 truncate at full size.
//
// A block computes 128 x 192 of C: two warpgroups, 64 rows each, and a warp
// that fills two rings in shared memory, 32 of k a stage. High parts stay for
// the 64 of k, the others go after their own 32:
//
//   high    4 stages of  A [128][32] | B [192][32]                     20 KB
//   rest    3 stages of  A middle, low [128][32] | B middle, low       40 KB
//
// While one warpgroup moves its sums, the other keeps the tensor cores busy.

#pragma once

#include "kernels/cuda/bf16_slices.h"
#include "kernels/cuda/sm90_ffma_tile.cuh"
#include "kernels/cuda/sm90_pipeline.cuh"
#include "kernels/cuda/sm90_wgmma.cuh"
#include "kernels/cuda/split_tail.h"

namespace gemmd::sm90 {

struct Bf16x6Tile {
  static constexpr int kM = 128;
  static constexpr int kN = 192;
  static constexpr int kK = 32;  // of a stage
  static constexpr int kHighStages = 4;
  static constexpr int kRestStages = 3;
  static constexpr int kComputeThreads = 256;
  static constexpr int kThreads = 384;
  static constexpr int kPartBytesA = kM * kK * 2;
  static constexpr int kPartBytesB = kN * kK * 2;
  static constexpr int kHighBytes = kPartBytesA + kPartBytesB;
  static constexpr int kRestBytes = 2 * kHighBytes;
  static constexpr int kSharedBytes =
      1024 + kHighStages * (kHighBytes + 16) + kRestStages * (kRestBytes + 16);
  static constexpr int kSums = kM * kN / kComputeThreads;  // of a thread: 96
};

struct Bf16x6Problem {
  FfmaOutput output;
  SplitTail plan;
  int tiles_m;
  int tiles_n;
  int rows_a;  // of a part of A, in the matrix of the three
  int rows_b;
  float4* partials;  // a tile for each worker
  uint64_t* flags;   // see FfmaStreamKProblem
  uint64_t launch;
  const Bf16Findings* findings_a;
  const Bf16Findings* findings_b;
  uint32_t* left_alone;  // set to whether the product is left to others
  int log2_k;            // rounded up
};

// Whether the parts hold A and B, and no sum of products of parts can overflow.
// If not, the product is left to an FP32 kernel.
__device__ __forceinline__ bool HoldsInBf16(const Bf16Findings& a,
                                            const Bf16Findings& b, int log2_k) {
  const int exponent_a = static_cast<int>(a.largest >> 23) - 127;
  const int exponent_b = static_cast<int>(b.largest >> 23) - 127;
  return a.has_tiny == 0 && b.has_tiny == 0 && exponent_a < 126 &&
         exponent_b < 126 && exponent_a + exponent_b + log2_k < 124;
}

// The tile of that number: 12 rows of tiles at a time, so that what runs at the
// same time shares operands in the L2 cache.
struct TileOrigin2 {
  int m;
  int n;
};
__device__ __forceinline__ TileOrigin2 OriginOf(int64_t tile, int tiles_m,
                                                int tiles_n) {
  constexpr int kBand = 12;
  const int64_t band = tile / (int64_t{kBand} * tiles_n);
  const int64_t rest = tile - band * kBand * tiles_n;
  const int rows = min(kBand, tiles_m - static_cast<int>(band) * kBand);
  return {static_cast<int>(band * kBand + rest % rows) * Bf16x6Tile::kM,
          static_cast<int>(rest / rows) * Bf16x6Tile::kN};
}

// A ring's place in shared memory, and its barriers.
template <int kStages, int kStageBytes>
struct Bf16Ring {
  uint32_t stages;
  uint32_t full;
  uint32_t empty;

  static constexpr int kBytes = kStages * kStageBytes;

  __device__ __forceinline__ Bf16Ring(uint32_t stages, uint32_t barriers)
      : stages(stages), full(barriers), empty(barriers + kStages * 8) {
    if (threadIdx.x != 0) return;
    for (int s = 0; s < kStages; ++s) {
      InitBarrier(full + s * 8, 1);
      InitBarrier(empty + s * 8, Bf16x6Tile::kComputeThreads / 128);
    }
  }

  __device__ __forceinline__ uint32_t At(int stage) const {
    return stages + stage * kStageBytes;
  }
  // One thread: waits until the stage is free; its bytes will then count.
  __device__ __forceinline__ uint32_t
  BeginFill(const RingPosition<kStages>& at) const {
    Wait(empty + at.stage * 8, at.parity);
    ArriveExpectingBytes(full + at.stage * 8, kStageBytes);
    return full + at.stage * 8;
  }
  __device__ __forceinline__ void AwaitFull(
      const RingPosition<kStages>& at) const {
    Wait(full + at.stage * 8, at.parity);
  }
  __device__ __forceinline__ void Release(int stage) const {
    if (threadIdx.x % 128 == 0) Arrive(empty + stage * 8);
  }
};
using Bf16HighRing = Bf16Ring<Bf16x6Tile::kHighStages, Bf16x6Tile::kHighBytes>;
using Bf16RestRing = Bf16Ring<Bf16x6Tile::kRestStages, Bf16x6Tile::kRestBytes>;

// A warpgroup's 64 x 192 sums: a thread's share.
class Bf16x6Sums {
 public:
  // Adds what the tensor core has summed up, rounded.
  __device__ __forceinline__ void MoveChunk() {
    FenceRegisters(chunk_);
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) sums[i] += chunk_[i];
    FenceRegisters(chunk_);
  }

  // Starts products 1 .. 5 of a stage; `begin` forgets what chunk_ held.
  // `high` and `rest` are the stage's places in shared memory.
  __device__ __forceinline__ void StartSmall(uint32_t high, uint32_t rest,
                                             bool begin) {
    const uint32_t a[3] = {OwnRows(high), OwnRows(rest),
                           OwnRows(rest + T::kPartBytesA)};
    const uint32_t rest_b = rest + 2 * T::kPartBytesA;
    const uint32_t b[3] = {high + T::kPartBytesA, rest_b,
                           rest_b + T::kPartBytesB};
    constexpr int kProducts[5][2] = {{1, 1}, {2, 0}, {0, 2}, {1, 0}, {0, 1}};
    WarpgroupArrive();
#pragma unroll
    for (int p = 0; p < 5; ++p) {
      Start(a[kProducts[p][0]], b[kProducts[p][1]], begin && p == 0);
    }
    WarpgroupCommit();
  }

  // Starts product 6 of a stage.
  __device__ __forceinline__ void StartHigh(uint32_t high) {
    Start(OwnRows(high), high + T::kPartBytesA, false);
  }

  float sums[Bf16x6Tile::kSums];

 private:
  using T = Bf16x6Tile;

  // The rows of this warpgroup in a part of A.
  static __device__ __forceinline__ uint32_t OwnRows(uint32_t part) {
    return part + threadIdx.x / 128 * (T::kPartBytesA / 2);
  }
  __device__ __forceinline__ void Start(uint32_t a, uint32_t b, bool begin) {
#pragma unroll
    for (int k = 0; k < T::kK / 16; ++k) {
      MultiplyBf16M64N192K16(chunk_, DescribeRows64(a + k * 32),
                             DescribeRows64(b + k * 32), !begin || k > 0);
    }
  }

  float chunk_[T::kSums];  // in the tensor core's hands
};

__global__ void __launch_bounds__(Bf16x6Tile::kThreads, 1)
    Bf16x6(const __grid_constant__ CUtensorMap map_a,
           const __grid_constant__ CUtensorMap map_b,
           const __grid_constant__ Bf16x6Problem p) {
#if defined(GEMMD_SM90A)
  using T = Bf16x6Tile;
  extern __shared__ uint8_t shared[];
  const bool holds = HoldsInBf16(*p.findings_a, *p.findings_b, p.log2_k);
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.left_alone = !holds;
  if (!holds) return;
  const uint32_t base = (SharedAddress(shared) + 1023) & ~1023u;
  const uint32_t barriers = base + Bf16HighRing::kBytes + Bf16RestRing::kBytes;
  const Bf16HighRing high(base, barriers);
  const Bf16RestRing rest(base + Bf16HighRing::kBytes,
                          barriers + T::kHighStages * 16);
  if (threadIdx.x == 0) FenceBarrierInit();
  __syncthreads();
  RingPosition<T::kHighStages> high_at;
  RingPosition<T::kRestStages> rest_at;

  // The warps that fill the rings: one thread does.
  if (threadIdx.x >= T::kComputeThreads) {
    ReleaseRegisters<24>();
    if (threadIdx.x != T::kComputeThreads) return;
    high_at.parity = 1;
    rest_at.parity = 1;
    for (int round = 0; round < p.plan.Rounds(blockIdx.x); ++round) {
      const SplitTailPart part = p.plan.Part(blockIdx.x, round);
      const TileOrigin2 origin = OriginOf(part.tile, p.tiles_m, p.tiles_n);
      for (int step = part.first; step < part.last; ++step) {
        const int k = step * T::kK;
        uint32_t barrier = high.BeginFill(high_at);
        uint32_t to = high.At(high_at.stage);
        LoadBox(to, map_a, k, origin.m, barrier);
        LoadBox(to + T::kPartBytesA, map_b, k, origin.n, barrier);
        high_at.Advance();
        barrier = rest.BeginFill(rest_at);
        to = rest.At(rest_at.stage);
        for (int i = 1; i < 3; ++i, to += T::kPartBytesA) {
          LoadBox(to, map_a, k, i * p.rows_a + origin.m, barrier);
        }
        for (int i = 1; i < 3; ++i, to += T::kPartBytesB) {
          LoadBox(to, map_b, k, i * p.rows_b + origin.n, barrier);
        }
        rest_at.Advance();
      }
    }
    return;
  }

  // The warpgroups that compute.
  ClaimRegisters<240>();
  Bf16x6Sums tile;
  for (int round = 0; round < p.plan.Rounds(blockIdx.x); ++round) {
    const SplitTailPart part = p.plan.Part(blockIdx.x, round);
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) tile.sums[i] = 0;
    // Two stages a chunk; the last may have one.
    for (int step = part.first; step < part.last; step += 2) {
      const bool two = step + 1 < part.last;
      const int first_high = high_at.stage;
      const int first_rest = rest_at.stage;
      high.AwaitFull(high_at);
      rest.AwaitFull(rest_at);
      high_at.Advance();
      rest_at.Advance();
      tile.StartSmall(high.At(first_high), rest.At(first_rest), true);
      const int second_high = high_at.stage;
      const int second_rest = rest_at.stage;
      if (two) {
        high.AwaitFull(high_at);
        rest.AwaitFull(rest_at);
        high_at.Advance();
        rest_at.Advance();
        tile.StartSmall(high.At(second_high), rest.At(second_rest), false);
        WarpgroupWait<1>();
        rest.Release(first_rest);
      }
      WarpgroupArrive();
      tile.StartHigh(high.At(first_high));
      if (two) tile.StartHigh(high.At(second_high));
      WarpgroupCommit();
      WarpgroupWait<1>();
      rest.Release(two ? second_rest : first_rest);
      WarpgroupWait<0>();
      high.Release(first_high);
      if (two) high.Release(second_high);
      tile.MoveChunk();
    }
#pragma unroll
    for (int i = 0; i < T::kSums; ++i) tile.sums[i] *= p.output.alpha;

    // The sums of other workers for the same tile, and C.
    if (part.slice + 1 < part.slices) {
      float4* to =
          p.partials + size_t{blockIdx.x} * (T::kM * T::kN / 4) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < T::kSums; i += 4) {
        __stcg(to + i / 4 * T::kComputeThreads,
               make_float4(tile.sums[i], tile.sums[i + 1], tile.sums[i + 2],
                           tile.sums[i + 3]));
      }
      __threadfence();
      NamedBarrier(1, T::kComputeThreads);
      if (threadIdx.x == 0) SetFlag(p.flags + blockIdx.x, p.launch);
      continue;
    }
    for (int other = part.slices - 1; other > 0; --other) {
      const int worker = static_cast<int>(blockIdx.x) - other;
      if (threadIdx.x == 0) AwaitAndClearFlag(p.flags + worker, p.launch);
      NamedBarrier(1, T::kComputeThreads);
      const float4* from =
          p.partials + size_t(worker) * (T::kM * T::kN / 4) + threadIdx.x;
#pragma unroll
      for (int i = 0; i < T::kSums; i += 4) {
        const float4 v = __ldcg(from + i / 4 * T::kComputeThreads);
        tile.sums[i] += v.x;
        tile.sums[i + 1] += v.y;
        tile.sums[i + 2] += v.z;
        tile.sums[i + 3] += v.w;
      }
    }
    const TileOrigin2 origin = OriginOf(part.tile, p.tiles_m, p.tiles_n);
    const int row = origin.m + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
    const int col = origin.n + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < T::kSums; i += 4) {
      p.output.StoreTwo(row, col + i * 2, tile.sums[i], tile.sums[i + 1]);
      p.output.StoreTwo(row + 8, col + i * 2, tile.sums[i + 2],
                        tile.sums[i + 3]);
    }
  }
#endif
}

}  // namespace gemmd::sm90
