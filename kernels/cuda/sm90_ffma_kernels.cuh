// The two sm90 FP32 kernels over one inner loop (sm90_ffma_tile.cuh): stream-K
// for large products, and a tile shared by a cluster for those whose tiles
// would leave most of the chip idle. In both, one thread fills a ring in shared
// memory through the copy engine and four warps compute from it.

#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/sm90_ffma_copy.cuh"
#include "kernels/cuda/sm90_ffma_tile.cuh"
#include "kernels/cuda/stream_k.h"

namespace gemmd::sm90 {

// ----- stream-K -----

struct FfmaStreamKProblem {
  FfmaOutput output;
  StreamK plan;
  int tiles_m;
  float4* partials;  // a tile for each worker
  // flags[w] is `launch` once worker w's partial sum is there; whoever has used
  // it writes 0, so that a captured launch can be repeated.
  uint64_t* flags;
  uint64_t launch;  // no two launches have the same
  // Where not null, in device memory: 0 means there is nothing to do.
  const uint32_t* only_if;
};

// Two blocks fit on an SM; while one writes its C, the other computes.
constexpr int kFfmaStages = 3;
constexpr int kFfmaThreads = 256;  // 4 warps that compute, 4 to fill the ring
constexpr int kFfmaComputeRegisters = 232;
constexpr int kFfmaFillRegisters = 24;

// Leaves the tile's sums, scaled, for the tile's owner.
template <typename Tile>
__device__ __forceinline__ void LeavePartial(const Tile& tile,
                                             const FfmaStreamKProblem& p) {
  constexpr int kFloat4s = Tile::kTileM * Tile::kTileN / 4;
  float4* at = p.partials + size_t{blockIdx.x} * kFloat4s + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Tile::kRowsOfAThread; ++i) {
#pragma unroll
    for (int c = 0; c < Tile::kFours; ++c) {
      __stcg(at + (i * Tile::kFours + c) * Tile::kThreads, tile.FourSums(i, c));
    }
  }
  __threadfence();
  NamedBarrier(1, Tile::kThreads);
  if (threadIdx.x == 0) SetFlag(p.flags + blockIdx.x, p.launch);
}

// Adds the partial sum that `worker` leaves, when it is there.
template <typename Tile>
__device__ __forceinline__ void AddPartial(Tile& tile,
                                           const FfmaStreamKProblem& p,
                                           int worker) {
  constexpr int kFloat4s = Tile::kTileM * Tile::kTileN / 4;
  if (threadIdx.x == 0) AwaitAndClearFlag(p.flags + worker, p.launch);
  NamedBarrier(1, Tile::kThreads);
  const float4* at = p.partials + size_t(worker) * kFloat4s + threadIdx.x;
#pragma unroll
  for (int i = 0; i < Tile::kRowsOfAThread; ++i) {
#pragma unroll
    for (int c = 0; c < Tile::kFours; ++c) {
      tile.AddFour(i, c, __ldcg(at + (i * Tile::kFours + c) * Tile::kThreads));
    }
  }
}

// kVector is output.vector: a branch in the kernel would cost registers.
template <LayoutA kLayoutA, bool kVector>
__global__ void __launch_bounds__(kFfmaThreads, 2)
    FfmaStreamK(const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ FfmaStreamKProblem p) {
#if defined(GEMMD_SM90A)
  using Tile = FfmaTile<kLayoutA, 8, 16>;
  using Ring = FfmaRing<Tile, kFfmaStages>;
  extern __shared__ __align__(16) uint8_t shared[];
  const Ring ring(shared);
  AwaitEarlierLaunches();
  AllowNextLaunch();
  if (p.only_if != nullptr && *p.only_if == 0) return;
  RingPosition<kFfmaStages> at;
  StreamKSegments segments(p.plan, blockIdx.x);

  // The warps that fill the ring: one thread does.
  if (threadIdx.x >= Tile::kThreads) {
    ReleaseRegisters<kFfmaFillRegisters>();
    if (threadIdx.x != Tile::kThreads) return;
    at.parity = 1;
    while (!segments.done()) {
      const StreamKSegment s = segments.Next();
      ring.template Fill<kLayoutA>(
          at, map_a, map_b, int(s.tile % p.tiles_m) * Tile::kTileM,
          int(s.tile / p.tiles_m) * Tile::kTileN, s.first, s.last);
    }
    return;
  }

  // The warps that compute.
  ClaimRegisters<kFfmaComputeRegisters>();
  Tile tile;
  while (!segments.done()) {
    const StreamKSegment s = segments.Next();
    ring.Sum(at, tile, s.last - s.first);
    tile.Scale(p.output.alpha);
    if (s.last < p.plan.steps_per_tile) {
      LeavePartial(tile, p);
      continue;
    }
    if (s.first > 0) {
      for (int w = p.plan.FirstWorkerOf(s.tile); w < int(blockIdx.x); ++w) {
        AddPartial(tile, p, w);
      }
    }
    const int m = int(s.tile % p.tiles_m) * Tile::kTileM;
    const int n = int(s.tile / p.tiles_m) * Tile::kTileN;
    if constexpr (!kVector) {
      FfmaRowWriter<Tile>::Write(tile, p.output, m, n,
                                 shared + Ring::kAllocatedBytes);
    } else {
#pragma unroll
      for (int i = 0; i < Tile::kRowsOfAThread; ++i) {
#pragma unroll
        for (int c = 0; c < Tile::kFours; ++c) {
          p.output.Store(m + tile.Row(i), n + tile.Column(c),
                         tile.FourSums(i, c));
        }
      }
    }
  }
#endif
}

// ----- a tile for a cluster -----

struct FfmaClusterProblem {
  FfmaOutput output;
  FfmaOperands operands;  // where they do not come through the copy engine
  int tiles_m;
  int steps;
  const uint32_t* only_if;  // see FfmaStreamKProblem
};

constexpr int kMaxSlices = 8;  // the largest portable cluster

// What a cluster kernel is made of: a tile; groups of warps, which take the
// stages in turn (each group has sums of its own of the whole tile); the ring's
// stages, the threads beside that fill it, how many blocks an SM should hold,
// and whether the operands are copied element by element.
template <typename T, int kGroupsOf, int kStagesOf, int kFillThreads,
          int kBlocksAnSmOf, bool kCopiesOf = false>
struct FfmaClusterShape {
  using Tile = T;
  static constexpr bool kCopies = kCopiesOf;
  static_assert(!kCopies || kFillThreads == kFfmaCopyThreads);
  using Ring = FfmaRing<Tile, kStagesOf, kCopies ? kFillThreads : 1>;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kBlocksAnSm = kBlocksAnSmOf;
  static constexpr int kComputeThreads = kGroups * Tile::kThreads;
  static constexpr int kThreads = kComputeThreads + kFillThreads;
  // Whole warpgroups fill where registers are to move to those that compute.
  static constexpr bool kMovesRegisters = kFillThreads == 128 && !kCopies;
  static constexpr int kRowFours = Tile::kTileN / 4 + 1;  // of sums, padded
  static constexpr int kSumFours = Tile::kTileM * kRowFours;
  // Sums that a block leaves for the cluster: of more than two groups it adds
  // them up first, since each would be read by another block.
  static constexpr int kSums = kGroups > 2 ? 1 : kGroups;
  static_assert(kGroups * kSumFours * 16 <=
                    kStages * (Tile::kBytesA + Tile::kBytesB),
                "the sums take the ring's place");
};
template <LayoutA kLayoutA>
using FfmaCluster128 =
    FfmaClusterShape<FfmaTile<kLayoutA, 8, 16>, 2, 6, 128, 1>;
template <LayoutA kLayoutA>
using FfmaCluster96 = FfmaClusterShape<FfmaTile<kLayoutA, 6, 12>, 2, 6, 32, 1>;
template <LayoutA kLayoutA>
using FfmaCluster64 = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8>, 2, 6, 32, 1>;
template <LayoutA kLayoutA>
using FfmaClusterLight =
    FfmaClusterShape<FfmaTile<kLayoutA, 4, 8>, 1, 4, 32, 2>;
template <LayoutA kLayoutA>
using FfmaCluster32 =
    FfmaClusterShape<FfmaTile<kLayoutA, 4, 8, 1, 1>, 4, 8, 32, 3>;
// Those that copy; B's rows are padded for it.
template <LayoutA kLayoutA>
using FfmaCopy64 = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8, 2, 2, 4>, 2, 4,
                                    kFfmaCopyThreads, 1, true>;
template <LayoutA kLayoutA>
using FfmaCopyLight = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8, 2, 2, 4>, 1, 4,
                                       kFfmaCopyThreads, 2, true>;
template <LayoutA kLayoutA>
using FfmaCopy32 = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8, 1, 1, 4>, 4, 8,
                                    kFfmaCopyThreads, 2, true>;

__device__ __forceinline__ void Add(float4& sum, const float4& x) {
  sum.x += x.x;
  sum.y += x.y;
  sum.z += x.z;
  sum.w += x.w;
}

// Adds up this block's share of a tile's elements, from the shared memory of
// all blocks of the cluster, and writes it to C: kWidth neighbours a thread, so
// that a warp writes one piece of a row (elements one by one where C's rows are
// not 16-byte aligned). Cluster: cooperative_groups::cluster_group, which older
// architectures than sm_90 do not have.
template <typename Shape, int kWidth, typename Cluster>
__device__ __forceinline__ void StoreShare(const Cluster& cluster, float4* sums,
                                           const FfmaOutput& output, int m,
                                           int n) {
  using Tile = typename Shape::Tile;
  constexpr int kOfARow = Tile::kTileN / kWidth;
  constexpr int kAll = Tile::kTileM * kOfARow;
  const int slices = cluster.num_blocks();
  const int share = (kAll + slices - 1) / slices;
  const int begin = static_cast<int>(cluster.block_rank()) * share;
  const int end = min(kAll, begin + share);
  for (int x = begin + threadIdx.x; x < end; x += Shape::kComputeThreads) {
    const int row = x / kOfARow;
    const int col = x % kOfARow * kWidth;
    const int from = row * Shape::kRowFours * 4 + col;
    alignas(16) float parts[kMaxSlices][Shape::kSums][kWidth];
#pragma unroll
    for (int s = 0; s < kMaxSlices; ++s) {
#pragma unroll
      for (int g = 0; g < Shape::kSums; ++g) {
        if (s >= slices) continue;
        const float* const at =
            reinterpret_cast<const float*>(cluster.map_shared_rank(sums, s)) +
            g * Shape::kSumFours * 4 + from;
        if constexpr (kWidth == 4) {
          *reinterpret_cast<float4*>(parts[s][g]) =
              *reinterpret_cast<const float4*>(at);
        } else {
          parts[s][g][0] = *at;
        }
      }
    }
    float sum[kWidth] = {};
#pragma unroll
    for (int s = 0; s < kMaxSlices; ++s) {
#pragma unroll
      for (int g = 0; g < Shape::kSums; ++g) {
        if (s >= slices) continue;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += parts[s][g][i];
      }
    }
    if constexpr (kWidth == 4) {
      output.Store(m + row, n + col, {sum[0], sum[1], sum[2], sum[3]});
    } else {
      output.StoreOne(m + row, n + col, sum[0]);
    }
  }
}

// The blocks of a cluster share one tile, each with its slice of k; then each
// adds up a share of the tile's rows, in a fixed order, from the shared memory
// of all.
template <LayoutA kLayoutA, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksAnSm)
    FfmaCluster(const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ FfmaClusterProblem p) {
#if defined(GEMMD_SM90A)
  namespace cg = cooperative_groups;
  using Tile = typename Shape::Tile;
  extern __shared__ uint8_t shared[];
  const cg::cluster_group cluster = cg::this_cluster();
  const int slices = cluster.num_blocks();
  const int slice = cluster.block_rank();
  const int tile_index = blockIdx.x / slices;
  const int m = tile_index % p.tiles_m * Tile::kTileM;
  const int n = tile_index / p.tiles_m * Tile::kTileN;
  const int first = int(int64_t{slice} * p.steps / slices);
  const int last = int(int64_t{slice + 1} * p.steps / slices);
  if (!Shape::kCopies && threadIdx.x == Shape::kComputeThreads) {
    PrefetchTensorMap(map_a);
    PrefetchTensorMap(map_b);
  }
  const typename Shape::Ring ring(shared);
  AwaitEarlierLaunches();
  AllowNextLaunch();
  if (p.only_if != nullptr && *p.only_if == 0) return;
  RingPosition<Shape::kStages> at;

  // The warps that fill the ring: one thread does, or all where they copy.
  if (threadIdx.x >= Shape::kComputeThreads) {
    if constexpr (Shape::kMovesRegisters) {
      ReleaseRegisters<kFfmaFillRegisters>();
    }
    if constexpr (Shape::kCopies) {
      at.parity = 1;
      CopyFill<kLayoutA>(ring, at, p.operands, p.output.m, p.output.n, m, n,
                         first, last);
    } else if (threadIdx.x == Shape::kComputeThreads) {
      at.parity = 1;
      ring.template Fill<kLayoutA>(at, map_a, map_b, m, n, first, last);
    }
    cluster.sync();
    cluster.sync();
    return;
  }

  // The warps that compute.
  if constexpr (Shape::kMovesRegisters) ClaimRegisters<240>();
  const int group = threadIdx.x / Tile::kThreads;
  Tile tile;
  const int steps =
      (last - first + Shape::kGroups - 1 - group) / Shape::kGroups;
  at.stage = group;
  if (steps > 0) {
    ring.template Sum<Shape::kGroups>(at, tile, steps);
  } else {
    tile.Clear();
  }
  tile.Scale(p.output.alpha);
  NamedBarrier(1, Shape::kComputeThreads);  // nobody reads the ring any more
  float4* const sums = reinterpret_cast<float4*>(shared);
  float4* const own = sums + group * Shape::kSumFours;
#pragma unroll
  for (int i = 0; i < Tile::kRowsOfAThread; ++i) {
#pragma unroll
    for (int c = 0; c < Tile::kFours; ++c) {
      own[tile.Row(i) * Shape::kRowFours + tile.Column(c) / 4] =
          tile.FourSums(i, c);
    }
  }
  constexpr int kFoursOfARow = Tile::kTileN / 4;
  constexpr int kFours = Tile::kTileM * kFoursOfARow;
  if constexpr (Shape::kSums < Shape::kGroups) {
    NamedBarrier(1, Shape::kComputeThreads);
    for (int x = threadIdx.x; x < kFours; x += Shape::kComputeThreads) {
      float4* const at =
          sums + x / kFoursOfARow * Shape::kRowFours + x % kFoursOfARow;
      float4 sum = *at;
#pragma unroll
      for (int g = 1; g < Shape::kGroups; ++g) {
        Add(sum, at[g * Shape::kSumFours]);
      }
      *at = sum;
    }
  }
  cluster.sync();  // the sums of all slices are there
  if (p.output.vector) {
    StoreShare<Shape, 4>(cluster, sums, p.output, m, n);
  } else {
    StoreShare<Shape, 1>(cluster, sums, p.output, m, n);
  }
  cluster.sync();  // nobody leaves while others read its shared memory
#endif
}

}  // namespace gemmd::sm90
