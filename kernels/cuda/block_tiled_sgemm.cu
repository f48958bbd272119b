// Step 1, block_tiled: 256 threads compute a 128 x 128 tile of C. For every 8
// of k they bring a tile of op(A) and one of op(B) into shared memory and each
// adds 8 outer products to its 8 x 8 elements of C.
//
//                    B tile [8][128]
//                    +---+---+-- ... --+
//                    | 8 | 8 |         |
//    A tile [128][8] +---+---+-- ... --+
//    +---+           C tile: thread t = 16 y + x
//    | 8 |           +---+---+
//    +---+           |t 0|t 1|  ...      8 x 8 elements each,
//    | 8 |           +---+---+           rows 8 y..., columns 8 x...
//    +---+           |t16|t17|
//    ...             ...
//
// An element that was read from global memory once is used 128 times. What
// holds it back is shared memory: A's rows are 8 floats apart there, so a
// warp's loads of A come one float at a time and those of B hit the same banks.

#include "kernels/cuda/ladder.h"
#include "kernels/cuda/table_sgemm.h"
#include "kernels/cuda/tile.cuh"

namespace gemmd {
namespace {

constexpr int kThreadTile = 8;
constexpr int kThreadsX = kTileOuter / kThreadTile;
static_assert(kThreadsX * kThreadsX == kTileThreads);

template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
__global__ void __launch_bounds__(kTileThreads, 2)
    BlockTiledSgemm(const __grid_constant__ ProblemTable<kCapacity> table) {
  using ReaderA = TileReader<!kTransposeA, kVector>;
  using ReaderB = TileReader<kTransposeB, kVector>;
  __shared__ alignas(16) float a_tile[kTileOuter][kTileK];
  __shared__ alignas(16) float b_tile[kTileK][kTileOuter];

  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTileOuter, kTileOuter>(p);
  ReaderA a_reader(p.a, p.lda, origin.row, p.m);
  ReaderB b_reader(p.b, p.ldb, origin.col, p.n);
  const int row = threadIdx.x / kThreadsX * kThreadTile;
  const int col = threadIdx.x % kThreadsX * kThreadTile;
  float sum[kThreadTile][kThreadTile] = {};

  const int first = FirstTileK(p.k);
  ReaderA::Write(a_reader.ReadFirst(first), a_tile);
  ReaderB::Write(b_reader.ReadFirst(first), b_tile);
  for (int left = TilesAfterFirst(p.k); true; --left) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTileK; ++k) {
#pragma unroll
      for (int i = 0; i < kThreadTile; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadTile; ++j) {
          sum[i][j] = fmaf(a_tile[row + i][k], b_tile[k][col + j], sum[i][j]);
        }
      }
    }
    if (left == 0) break;
    __syncthreads();
    ReaderA::Write(a_reader.ReadNext(), a_tile);
    ReaderB::Write(b_reader.ReadNext(), b_tile);
  }

  const OutputTile output(p, FindTile<kTileOuter, kTileOuter>(p));
#pragma unroll
  for (int i = 0; i < kThreadTile; ++i) {
    output.WriteFour<kVector>(row + i, col, &sum[i][0]);
    output.WriteFour<kVector>(row + i, col + 4, &sum[i][4]);
  }
}

struct BlockTiled {
  static constexpr int kTileM = kTileOuter;
  static constexpr int kTileN = kTileOuter;
  static constexpr int kBlockX = kTileThreads;
  static constexpr int kBlockY = 1;

  template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
  static const void* Function() {
    return reinterpret_cast<const void*>(
        &BlockTiledSgemm<kTransposeA, kTransposeB, kVector, kCapacity>);
  }
};

}  // namespace

MadeKernel MakeBlockTiledSgemm(KernelInfo info) {
  return MakeTableSgemm(std::move(info), FunctionsOf<BlockTiled>());
}

}  // namespace gemmd
