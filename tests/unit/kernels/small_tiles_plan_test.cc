#include "kernels/cuda/small_tiles_plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/problem.h"

namespace gemmd {
namespace {

constexpr int kSms = 132;

const float* Address(uint64_t floats) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing lies there.
  return reinterpret_cast<const float*>((uintptr_t{1} << 40) + floats * 4);
}

// A product on operands that are nowhere.
SgemmArgs Product(const GemmShape& shape, uint64_t a, uint64_t b, uint64_t c) {
  return {.shape = shape,
          .a = Address(a),
          .lda = StoredColsA(shape),
          .b = Address(b),
          .ldb = StoredColsB(shape),
          .c = const_cast<float*>(Address(c)),
          .ldc = shape.n};
}

std::vector<const SgemmArgs*> PointersTo(const std::vector<SgemmArgs>& batch) {
  std::vector<const SgemmArgs*> pointers;
  for (const SgemmArgs& args : batch) pointers.push_back(&args);
  return pointers;
}

// What a block of the kernel computes, as the kernel finds it.
using Work = std::tuple<uintptr_t, uintptr_t, uintptr_t, int64_t, int64_t,
                        int64_t, uint32_t>;

std::vector<Work> WorkOfBlocks(const LargeBatchTable& table, int64_t blocks) {
  std::vector<Work> all;
  for (int64_t i = 0; i < blocks; ++i) {
    const BatchShape& s = table.FindShape(static_cast<uint32_t>(i));
    const auto tile = static_cast<uint32_t>(i) - s.first_tile;
    const BatchEntry product = table.Product(s, tile / s.tiles);
    all.emplace_back(product.a, product.b, product.c, s.m, s.n, s.k,
                     tile % s.tiles);
  }
  return all;
}

std::vector<Work> Wanted(const std::vector<const SgemmArgs*>& products,
                         const SmallTile& tile) {
  std::vector<Work> all;
  for (const SgemmArgs* p : products) {
    for (uint32_t i = 0; i < CountTiles(p->shape, tile); ++i) {
      all.emplace_back(reinterpret_cast<uintptr_t>(p->a),
                       reinterpret_cast<uintptr_t>(p->b),
                       reinterpret_cast<uintptr_t>(p->c), p->shape.m,
                       p->shape.n, p->shape.k, i);
    }
  }
  return all;
}

// All launches' blocks. `launches`, if not null, is told their number.
std::vector<Work> Launched(std::span<const SgemmArgs* const> products,
                           const SmallTile& tile, int* launches = nullptr) {
  std::vector<Work> all;
  int count = 0;
  while (!products.empty()) {
    LargeBatchTable table;
    const BatchPart part = FillBatchTable(products, tile, table);
    EXPECT_GT(part.products, 0u);
    if (part.products == 0) break;
    std::ranges::copy(WorkOfBlocks(table, part.blocks),
                      std::back_inserter(all));
    products = products.subspan(part.products);
    ++count;
  }
  if (launches != nullptr) *launches = count;
  return all;
}

TEST(SmallTilesPlanTest, EveryTileOfEveryProductIsOneBlock) {
  std::mt19937_64 random(TestSeed());
  const auto upto = [&](uint64_t n) { return 1 + random() % n; };
  for (int i = 0; i < 300; ++i) {
    // Runs of products, at equal distances or not.
    std::vector<SgemmArgs> batch;
    while (batch.size() < 500) {
      const auto size = [&] { return static_cast<int64_t>(upto(200)); };
      const GemmShape shape = {size(), size(), size(), i % 2 == 1, i % 4 == 3};
      const uint64_t step = upto(1 << 20);
      const bool even = random() % 2 == 0;
      for (uint64_t j = 0, count = upto(30); j < count; ++j) {
        const uint64_t at = even ? 1000 + j * step : upto(1 << 30);
        batch.push_back(Product(shape, at, at + 7 * step, at + 13 * step));
      }
    }
    const auto products = PointersTo(batch);
    const SmallTile& tile = kSmallTiles[random() % kSmallTileCount];
    ASSERT_EQ(Launched(products, tile), Wanted(products, tile));
  }
}

TEST(SmallTilesPlanTest, ProductsAtEqualDistancesAreOneLaunch) {
  std::vector<SgemmArgs> batch;
  for (uint64_t i = 0; i < 10000; ++i) {
    batch.push_back(Product({16, 16, 16}, i * 1024, i * 1024 + 256, i * 512));
  }
  auto products = PointersTo(batch);
  int launches = 0;
  EXPECT_EQ(Launched(products, kSmallTiles[0], &launches),
            Wanted(products, kSmallTiles[0]));
  EXPECT_EQ(launches, 1);
  std::ranges::shuffle(products, std::mt19937_64(TestSeed()));
  EXPECT_EQ(Launched(products, kSmallTiles[0], &launches),
            Wanted(products, kSmallTiles[0]));
  EXPECT_EQ(launches, 8);  // of 1361
}

TEST(SmallTilesPlanTest, PartsByTransposesAndPutsTheLongestFirst) {
  std::vector<SgemmArgs> batch;
  std::mt19937_64 random(TestSeed());
  for (int i = 0; i < 1000; ++i) {
    const auto k = static_cast<int64_t>(random() % 20);
    const GemmShape shape = {99, 99, k, random() % 2 == 0, random() % 2 == 0};
    batch.push_back(Product(shape, i, i, i));
  }
  auto products = PointersTo(batch);
  const std::vector<AlikeProducts> parts = PartProducts(products, kSms);
  EXPECT_EQ(parts.size(), 4u);
  std::vector<const SgemmArgs*> all;
  for (const auto& [part, tile] : parts) {
    EXPECT_TRUE(kSmallTiles[tile].transposes >> TransposesOf(part[0]->shape) &
                1);
    std::ranges::copy(part, std::back_inserter(all));
  }
  EXPECT_THAT(all, testing::UnorderedElementsAreArray(PointersTo(batch)));
  EXPECT_TRUE(std::ranges::is_sorted(all, {}, [](const SgemmArgs* p) {
    return std::tuple(TransposesOf(p->shape), -p->shape.k, p);
  }));
}

// Sorting costs the host more than it could gain where all run at once.
TEST(SmallTilesPlanTest, LeavesTheOrderOfOneRoundAlone) {
  std::vector<SgemmArgs> batch;
  for (int i = 0; i < 100; ++i) batch.push_back(Product({9, 9, i}, i, i, i));
  auto products = PointersTo(batch);
  EXPECT_EQ(PartProducts(products, kSms).size(), 1u);
  EXPECT_EQ(products, PointersTo(batch));
  std::vector<const SgemmArgs*> none;
  EXPECT_TRUE(PartProducts(none, kSms).empty());
}

TEST(SmallTilesPlanTest, ChoosesATileByWhatItWastes) {
  const auto choose = [](const GemmShape& shape, int count) {
    const std::vector<SgemmArgs> batch(count, Product(shape, 0, 0, 0));
    return kSmallTiles[ChooseSmallTile(PointersTo(batch), kSms)];
  };
  EXPECT_EQ(choose({16, 16, 16}, 4096).m, 16);
  EXPECT_EQ(choose({32, 32, 32}, 4096).m, 32);
  EXPECT_GE(choose({256, 256, 256}, 128).n, 64);
  EXPECT_LE(choose({256, 256, 256}, 1).n, 32);
}

TEST(SmallTilesPlanTest, ChoosesATileThatIsCompiledForTheTransposes) {
  for (const int64_t n : {16, 48, 100, 256}) {
    for (const int count : {1, 64, 1000}) {
      for (const int transposes : {0, 1, 2, 3}) {
        const GemmShape shape = {n, n, n, transposes % 2 == 1, transposes > 1};
        const std::vector<SgemmArgs> batch(count, Product(shape, 0, 0, 0));
        const int tile = ChooseSmallTile(PointersTo(batch), kSms);
        EXPECT_TRUE(kSmallTiles[tile].transposes >> transposes & 1)
            << n << " x " << count << ": " << tile;
      }
    }
  }
}

}  // namespace
}  // namespace gemmd
