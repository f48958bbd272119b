// A CUDA kernel that takes a table of problems (problem_table.h): the host
// side that all kernels of the ladder share.

#pragma once

#include <array>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/problem_table.h"
#include "kernels/sgemm.h"

namespace gemmd {

// How a problem's operands may be read. Each kernel is compiled for all eight.
struct SgemmVariant {
  bool transpose_a;
  bool transpose_b;
  // Four neighbouring elements in memory of A, B or C are one aligned 16-byte
  // access, and no edge of a matrix cuts through them.
  bool vector;

  int index() const { return transpose_a + 2 * transpose_b + 4 * vector; }
};
constexpr int kVariants = 8;

SgemmVariant VariantOf(const SgemmArgs& args);

// A kernel's functions and the shape of their launches: one CTA of `block_x` x
// `block_y` threads for each `tile_m` x `tile_n` tile of C.
struct TableFunctions {
  int tile_m;
  int tile_n;
  int block_x;
  int block_y;
  std::array<const void*, kVariants> single;  // of a ProblemTable<1>
  std::array<const void*, kVariants> table;   // of a full ProblemTable
};

// Collects the functions of `Kernel`, a struct with kTileM, kTileN, kBlockX,
// kBlockY and a static member function template
//   template <bool kTransposeA, bool kTransposeB, bool kVector, int kCapacity>
//   static const void* Function();
template <typename Kernel>
TableFunctions FunctionsOf();

// OK where the current device has code for `function`, a __global__ one; else
// FAILED_PRECONDITION with the reason, in words for users.
absl::Status CheckKernelRuns(const void* function);

// The kernel behind `functions`. FAILED_PRECONDITION, with a reason meant for
// users, where the current device cannot run them.
absl::StatusOr<std::unique_ptr<const SgemmKernel>> MakeTableSgemm(
    KernelInfo info, const TableFunctions& functions);

// ----- implementation -----

namespace internal {

template <typename Kernel, int kCapacity>
std::array<const void*, kVariants> VariantsOf() {
  return {Kernel::template Function<false, false, false, kCapacity>(),
          Kernel::template Function<true, false, false, kCapacity>(),
          Kernel::template Function<false, true, false, kCapacity>(),
          Kernel::template Function<true, true, false, kCapacity>(),
          Kernel::template Function<false, false, true, kCapacity>(),
          Kernel::template Function<true, false, true, kCapacity>(),
          Kernel::template Function<false, true, true, kCapacity>(),
          Kernel::template Function<true, true, true, kCapacity>()};
}

}  // namespace internal

template <typename Kernel>
TableFunctions FunctionsOf() {
  return {.tile_m = Kernel::kTileM,
          .tile_n = Kernel::kTileN,
          .block_x = Kernel::kBlockX,
          .block_y = Kernel::kBlockY,
          .single = internal::VariantsOf<Kernel, 1>(),
          .table = internal::VariantsOf<Kernel, kTableCapacity>()};
}

}  // namespace gemmd
