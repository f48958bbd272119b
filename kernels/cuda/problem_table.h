// The problems of one launch, passed to a kernel by value.
//
// A launch has one thread block (CTA) for each tile of C, numbered through all
// problems along grid.x alone: grid.y and grid.z end at 65535, too few for a
// tall C.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gemmd {

// One product, ready for the device: k is 0 where alpha is, and the other way
// round, so that a kernel needs no case for either.
struct DeviceProblem {
  const float* a;
  const float* b;
  float* c;
  int64_t lda;
  int64_t ldb;
  int64_t ldc;
  int64_t m;
  int64_t n;
  int64_t k;
  float alpha;
  float beta;
  uint32_t first_tile;  // the number of its first CTA
  uint32_t tiles_n;     // CTAs along n
};

// A kernel's parameter: pass it as `const __grid_constant__`.
template <int kCapacity>
struct ProblemTable {
  int size;
  DeviceProblem problems[kCapacity];
};

// Kernel parameters may take 32764 bytes (CUDA >= 12.1, sm_70 and newer).
constexpr int kTableCapacity = 372;
static_assert(sizeof(ProblemTable<kTableCapacity>) <= 32764 &&
              sizeof(ProblemTable<kTableCapacity + 1>) > 32764);

}  // namespace gemmd
