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

struct Stage {
  float a[kTileK][kTileOuter];
  float b[kTileK][kTileOuter];
};

template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, 2)
    DoubleBufferedSgemm(const __grid_constant__ ProblemTable<kCapacity> table) {
  using ReaderA = TileReader<!kTransposeA, kVector>;
  using ReaderB = TileReader<kTransposeB, kVector>;
  __shared__ alignas(16) Stage stages[2];

  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTileOuter, kTileOuter>(p);
  ReaderA a_reader(p.a, p.lda, origin.row, p.m);
  ReaderB b_reader(p.b, p.ldb, origin.col, p.n);
  Quadrants sums;

  // The first tile (all zeros where k is 0) goes to shared memory, the second
  // is on its way.
  const int first = FirstTileK(p.k);
  ReaderA::Write(a_reader.ReadFirst(first), stages[0].a);
  ReaderB::Write(b_reader.ReadFirst(first), stages[0].b);
  int left = TilesAfterFirst(p.k);
  float4 a_next = {};
  float4 b_next = {};
  if (left > 0) {
    a_next = a_reader.ReadNext();
    b_next = b_reader.ReadNext();
  }
  __syncthreads();

  // Tile by tile: compute this one, store the next one, load the one after. A
  // load that starts before the barrier has a whole tile's computation to end
  // in; after it the compiler would put it off to save registers.
  for (int now = 0; true; --left) {
    sums.Add(stages[now].a, stages[now].b);
    if (left == 0) break;
    now ^= 1;
    ReaderA::Write(a_next, stages[now].a);
    ReaderB::Write(b_next, stages[now].b);
    if (left > 1) {
      a_next = a_reader.ReadNext();
      b_next = b_reader.ReadNext();
    }
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
