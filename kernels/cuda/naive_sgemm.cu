// Step 0, naive: one thread computes one element of C and reads its row of
// op(A) and its column of op(B) from global memory.
//
//   C tile, 32 x 32 threads      thread (x, y) -> C(row0 + y, col0 + x)
//        x 0 ... 31
//   y 0  . . . . . .             a warp is one y: it reads one element of A,
//   ...  . . . . . .             the same for all, and 32 neighbours of B
//   y 31 . . . . . .
//
// Two loads for each multiplication: the load units, not the arithmetic, set
// the pace. The next step reads each element once for 128 uses.

#include "kernels/cuda/find_tile.cuh"
#include "kernels/cuda/ladder.h"
#include "kernels/cuda/table_sgemm.h"

namespace gemmd {
namespace {

constexpr int kTile = 32;

template <bool kTransposeA, bool kTransposeB, int kCapacity>
__global__ void __launch_bounds__(kTile* kTile)
    NaiveSgemm(const __grid_constant__ ProblemTable<kCapacity> table) {
  const DeviceProblem& p = FindProblem(table);
  const TileOrigin origin = FindTile<kTile, kTile>(p);
  const int64_t row = origin.row + threadIdx.y;
  const int64_t col = origin.col + threadIdx.x;
  if (row >= p.m || col >= p.n) return;

  const float* a = p.a + (kTransposeA ? row : row * p.lda);
  const float* b = p.b + (kTransposeB ? col * p.ldb : col);
  const int64_t a_step = kTransposeA ? p.lda : 1;
  const int64_t b_step = kTransposeB ? 1 : p.ldb;
  float sum = 0.0f;
  for (int64_t k = 0; k < p.k; ++k) {
    sum = fmaf(__ldg(a), __ldg(b), sum);
    a += a_step;
    b += b_step;
  }

  float* c = p.c + row * p.ldc + col;
  const float product = p.alpha * sum;
  *c = p.beta != 0.0f ? fmaf(p.beta, *c, product) : product;
}

struct Naive {
  static constexpr int kTileM = kTile;
  static constexpr int kTileN = kTile;
  static constexpr int kBlockX = kTile;
  static constexpr int kBlockY = kTile;

  // It reads single elements, so that alignment does not matter to it.
  template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
  static const void* Function() {
    return reinterpret_cast<const void*>(
        &NaiveSgemm<kTransposeA, kTransposeB, kCapacity>);
  }
};

}  // namespace

MadeKernel MakeNaiveSgemm(KernelInfo info) {
  return MakeTableSgemm(std::move(info), FunctionsOf<Naive>());
}

}  // namespace gemmd
