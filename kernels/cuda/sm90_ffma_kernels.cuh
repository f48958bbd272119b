// The two sm90 FP32 kernels over one inner loop (sm90_ffma_tile.cuh): stream-K
// for large products, and a tile shared by a cluster for those whose tiles
// would leave most of the chip idle. In both, one thread fills a ring in shared
// memory through the copy engine and four warps compute from it.

#pragma once

#include <cooperative_groups.h>

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
  for (int i = 0; i < Tile::kTileM / 16; ++i) {
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
  for (int i = 0; i < Tile::kTileM / 16; ++i) {
#pragma unroll
    for (int c = 0; c < Tile::kFours; ++c) {
      tile.AddFour(i, c, __ldcg(at + (i * Tile::kFours + c) * Tile::kThreads));
    }
  }
}

template <LayoutA kLayoutA>
__global__ void __launch_bounds__(kFfmaThreads, 2)
    FfmaStreamK(const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ FfmaStreamKProblem p) {
#if defined(GEMMD_SM90A)
  using Tile = FfmaTile<kLayoutA, 8, 16>;
  extern __shared__ uint8_t shared[];
  if (p.only_if != nullptr && *p.only_if == 0) return;
  const FfmaRing<Tile, kFfmaStages> ring(shared);
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
#pragma unroll
    for (int i = 0; i < Tile::kTileM / 16; ++i) {
#pragma unroll
      for (int c = 0; c < Tile::kFours; ++c) {
        p.output.Store(m + tile.Row(i), n + tile.Column(c),
                       tile.FourSums(i, c));
      }
    }
  }
#endif
}

// ----- a tile for a cluster -----

struct FfmaClusterProblem {
  FfmaOutput output;
  int tiles_m;
  int steps;
  const uint32_t* only_if;  // see FfmaStreamKProblem
};

constexpr int kMaxSlices = 8;  // the largest portable cluster

// What a cluster kernel is made of: a tile; one or two groups of four warps,
// which take the stages in turn (with two, each sub-partition has two warps to
// choose from); the ring's stages, and the warps that fill it.
template <typename T, int kGroupsOf, int kStagesOf, int kFillThreads>
struct FfmaClusterShape {
  using Tile = T;
  static constexpr int kGroups = kGroupsOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kComputeThreads = kGroups * Tile::kThreads;
  static constexpr int kThreads = kComputeThreads + kFillThreads;
  // Whole warpgroups fill where registers are to move to those that compute.
  static constexpr bool kMovesRegisters = kFillThreads == 128;
  static constexpr int kRowFours = Tile::kTileN / 4 + 1;  // of sums, padded
  static constexpr int kSumFours = Tile::kTileM * kRowFours;
  static_assert(kGroups * kSumFours * 16 <=
                    kStages * (Tile::kBytesA + Tile::kBytesB),
                "the sums take the ring's place");
};
template <LayoutA kLayoutA>
using FfmaCluster128 = FfmaClusterShape<FfmaTile<kLayoutA, 8, 16>, 2, 6, 128>;
template <LayoutA kLayoutA>
using FfmaCluster64 = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8>, 2, 6, 32>;
template <LayoutA kLayoutA>
using FfmaClusterLight = FfmaClusterShape<FfmaTile<kLayoutA, 4, 8>, 1, 4, 32>;

// The blocks of a cluster share one tile, each with its slice of k; then each
// adds up a share of the tile's rows, in a fixed order, from the shared memory
// of all.
template <LayoutA kLayoutA, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    FfmaCluster(const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ FfmaClusterProblem p) {
#if defined(GEMMD_SM90A)
  namespace cg = cooperative_groups;
  using Tile = typename Shape::Tile;
  extern __shared__ uint8_t shared[];
  if (p.only_if != nullptr && *p.only_if == 0) return;
  const cg::cluster_group cluster = cg::this_cluster();
  const int slices = cluster.num_blocks();
  const int slice = cluster.block_rank();
  const int tile_index = blockIdx.x / slices;
  const int m = tile_index % p.tiles_m * Tile::kTileM;
  const int n = tile_index / p.tiles_m * Tile::kTileN;
  const int first = int(int64_t{slice} * p.steps / slices);
  const int last = int(int64_t{slice + 1} * p.steps / slices);
  if (threadIdx.x == Shape::kComputeThreads) {
    PrefetchTensorMap(map_a);
    PrefetchTensorMap(map_b);
  }
  const FfmaRing<Tile, Shape::kStages> ring(shared);
  RingPosition<Shape::kStages> at;

  // The warps that fill the ring: one thread does.
  if (threadIdx.x >= Shape::kComputeThreads) {
    if constexpr (Shape::kMovesRegisters) {
      ReleaseRegisters<kFfmaFillRegisters>();
    }
    if (threadIdx.x == Shape::kComputeThreads) {
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
  for (int i = 0; i < Tile::kTileM / 16; ++i) {
#pragma unroll
    for (int c = 0; c < Tile::kFours; ++c) {
      own[tile.Row(i) * Shape::kRowFours + tile.Column(c) / 4] =
          tile.FourSums(i, c);
    }
  }
  cluster.sync();  // the sums of all slices are there
  constexpr int kFoursOfARow = Tile::kTileN / 4;
  for (int x = slice * Shape::kComputeThreads + threadIdx.x;
       x < Tile::kTileM * kFoursOfARow; x += slices * Shape::kComputeThreads) {
    const int row = x / kFoursOfARow;
    const int four = x % kFoursOfARow;
    const int from = row * Shape::kRowFours + four;
    float4 parts[kMaxSlices][Shape::kGroups];
#pragma unroll
    for (int s = 0; s < kMaxSlices; ++s) {
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
        if (s >= slices) continue;
        parts[s][g] =
            cluster.map_shared_rank(sums, s)[g * Shape::kSumFours + from];
      }
    }
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int s = 0; s < kMaxSlices; ++s) {
#pragma unroll
      for (int g = 0; g < Shape::kGroups; ++g) {
        if (s >= slices) continue;
        sum.x += parts[s][g].x;
        sum.y += parts[s][g].y;
        sum.z += parts[s][g].z;
        sum.w += parts[s][g].w;
      }
    }
    p.output.Store(m + row, n + four * 4, sum);
  }
  cluster.sync();  // nobody leaves while others read its shared memory
#endif
}

}  // namespace gemmd::sm90
