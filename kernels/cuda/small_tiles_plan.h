// What small_tiles decides on the host before it launches: the tile that a
// batch is cut into, and the tables that its products are passed in.

#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/cuda/batch_table.h"
#include "kernels/sgemm.h"

namespace gemmd {

// A tile of C that a block computes, the transposes that it is compiled for,
// and what a block takes, in cycles of an H200: ChooseSmallTile predicts by it.
struct SmallTile {
  int m;
  int n;
  int warps;
  int blocks;           // at most, that share a multiprocessor
  unsigned transposes;  // bit TransposesOf(): it is compiled for them
  // Its share of the time of a multiprocessor that is full of them. An operand
  // that is copied by elements adds half of `unaligned_per_k`; products of
  // unequal shapes stretch it all.
  double full, full_per_k, unaligned_per_k, stretch;
  // From its start to its end where it has a multiprocessor to itself.
  double alone, alone_per_k;
};

// By index. The first takes everything; the last is for what the one before it
// wastes more on.
inline constexpr SmallTile kSmallTiles[] = {
    {32, 32, 2, 12, 0b1111, 520, 14.2, 11.3, 1.0, 4100, 50},
    {16, 16, 1, 24, 0b0101, 140, 5.1, 3.3, 1.0, 3800, 41},
    {64, 64, 2, 6, 0b1111, 2600, 48, 30, 1.0, 6460, 111},
    {64, 128, 2, 4, 0b0111, 4460, 80, 42, 1.2, 12000, 177},
    {56, 128, 2, 4, 0b0101, 3200, 79, 40, 1.2, 10300, 163},
};
inline constexpr int kSmallTileCount = std::size(kSmallTiles);
inline constexpr int64_t kMaxSmallTileBlocks = INT32_MAX;
inline constexpr int64_t kMaxSmallTileK = int64_t{1} << 33;

// Which kernel of a tile a product needs: of A, plus twice that of B.
inline int TransposesOf(const GemmShape& s) {
  return s.transpose_a + 2 * s.transpose_b;
}

// Tiles of a product; the largest int64_t where there are more.
int64_t CountTiles(const GemmShape& shape, const SmallTile& tile);

// The tile, by index into kSmallTiles, that takes products of the same
// transposes the shortest time on `sm_count` multiprocessors, by a sample of
// them. It may depend on all of them: each tile gives the same bits.
int ChooseSmallTile(std::span<const SgemmArgs* const> products, int sm_count);

// Products of the same transposes, and the tile that they are cut into.
struct AlikeProducts {
  std::span<const SgemmArgs* const> products;
  int tile;
};

// Parts `products`, which it puts in an order that is good to launch: where
// they are more than one round of blocks, the longest first, so that none is
// begun when all others have ended.
std::vector<AlikeProducts> PartProducts(std::vector<const SgemmArgs*>& products,
                                        int sm_count);

// How many of `products` a launch takes.
struct BatchPart {
  size_t products;
  int64_t blocks;
};

// Fills `table`, which is empty, with products of the same transposes, from the
// first on, until it is full.
BatchPart FillBatchTable(std::span<const SgemmArgs* const> products,
                         const SmallTile& tile, LargeBatchTable& table);

}  // namespace gemmd
