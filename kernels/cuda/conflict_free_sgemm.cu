// Step 2, conflict_free: block_tiled with A's tile transposed in shared memory
// and each thread's 8 x 8 elements split into quadrants (quadrants.cuh), so
// that every shared load is one 16-byte access without bank conflicts.
//
// What holds it back: between the two barriers of a k-tile nothing is computed
// while the next tile comes from global memory.

#include "kernels/cuda/ladder.h"
#include "kernels/cuda/quadrants.cuh"
#include "kernels/cuda/table_sgemm.h"
#include "kernels/cuda/tile.cuh"

namespace gemmd {
namespace {

template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, 2)
    ConflictFreeSgemm(const __grid_constant__ ProblemTable<kCapacity> table) {
  using ReaderA = TileReader<!kTransposeA, kVector>;
  using ReaderB = TileReader<kTransposeB, kVector>;
  __shared__ alignas(16) float a_tile[kTileK][kTileOuter];
  __shared__ alignas(16) float b_tile[kTileK][kTileOuter];

  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTileOuter, kTileOuter>(p);
  ReaderA a_reader(p.a, p.lda, origin.row, p.m);
  ReaderB b_reader(p.b, p.ldb, origin.col, p.n);
  Quadrants sums;

  const int first = FirstTileK(p.k);
  ReaderA::Write(a_reader.ReadFirst(first), a_tile);
  ReaderB::Write(b_reader.ReadFirst(first), b_tile);
  for (int left = TilesAfterFirst(p.k); true; --left) {
    __syncthreads();
    sums.Add(a_tile, b_tile);
    if (left == 0) break;
    __syncthreads();
    ReaderA::Write(a_reader.ReadNext(), a_tile);
    ReaderB::Write(b_reader.ReadNext(), b_tile);
  }

  sums.Write<kVector>({p, FindTile<kTileOuter, kTileOuter>(p)});
}

struct ConflictFree {
  static constexpr int kTileM = kTileOuter;
  static constexpr int kTileN = kTileOuter;
  static constexpr int kBlockX = kTileThreads;
  static constexpr int kBlockY = 1;

  template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
  static const void* Function() {
    return reinterpret_cast<const void*>(
        &ConflictFreeSgemm<kTransposeA, kTransposeB, kVector, kCapacity>);
  }
};

}  // namespace

MadeKernel MakeConflictFreeSgemm(KernelInfo info) {
  return MakeTableSgemm(std::move(info), FunctionsOf<ConflictFree>());
}

}  // namespace gemmd
