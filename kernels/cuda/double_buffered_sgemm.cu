// Step 3, double_buffered: conflict_free with two buffers in shared memory. The
// loads of the next tile are started before the computation of this one and
// stored after it into the other buffer; one barrier a k-tile.
//
//   global -> registers   tile 0 | tile 1            | tile 2            |
//   registers -> shared     0 -> [0]        1 -> [1] |        2 -> [0]   |
//   compute                      | tile 0 of [0]     | tile 1 of [1]     |
//   barrier                      ^                   ^                   ^
//
// What holds it back on Hopper: every multiplication takes an issue slot, so
// that each load, address and barrier instruction costs arithmetic.

#include "kernels/cuda/ladder.h"
#include "kernels/cuda/quadrants.cuh"
#include "kernels/cuda/table_sgemm.h"
#include "kernels/cuda/tile.cuh"

namespace gemmd {
namespace {

template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, 2)
    DoubleBufferedSgemm(const __grid_constant__ ProblemTable<kCapacity> table) {
  using ReaderA = TileReader<!kTransposeA, kVector>;
  using ReaderB = TileReader<kTransposeB, kVector>;
  __shared__ alignas(16) float a_tiles[2][kTileK][kTileOuter];
  __shared__ alignas(16) float b_tiles[2][kTileK][kTileOuter];

  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTileOuter, kTileOuter>(p);
  ReaderA a_reader(p.a, p.lda, origin.row, p.m);
  ReaderB b_reader(p.b, p.ldb, origin.col, p.n);
  Quadrants sums;

  // The first tile; where k is 0 it is all zeros.
  ReaderA::Write(a_reader.Read(p.k), a_tiles[0]);
  ReaderB::Write(b_reader.Read(p.k), b_tiles[0]);
  __syncthreads();

  // Tile by tile: load the next one (past the last there is none, and nothing
  // is read), compute this one, store the next one.
  int now = 0;
  for (int64_t k_left = p.k - kTileK; true; k_left -= kTileK) {
    const float4 a_next = a_reader.Read(k_left);
    const float4 b_next = b_reader.Read(k_left);
    sums.Add(a_tiles[now], b_tiles[now]);
    if (k_left <= 0) break;
    now ^= 1;
    ReaderA::Write(a_next, a_tiles[now]);
    ReaderB::Write(b_next, b_tiles[now]);
    __syncthreads();
  }
  sums.Write<kVector>({p, FindTile<kTileOuter, kTileOuter>(p)});
}

struct DoubleBuffered {
  static constexpr int kTileM = kTileOuter;
  static constexpr int kTileN = kTileOuter;
  static constexpr int kBlockX = kTileThreads;
  static constexpr int kBlockY = 1;

  template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
  static const void* Function() {
    return reinterpret_cast<const void*>(
        &DoubleBufferedSgemm<kTransposeA, kTransposeB, kVector, kCapacity>);
  }
};

}  // namespace

MadeKernel MakeDoubleBufferedSgemm(KernelInfo info) {
  return MakeTableSgemm(std::move(info), FunctionsOf<DoubleBuffered>());
}

}  // namespace gemmd
