#include "kernels/cuda/small_tiles_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gemmd {
namespace {

// From so many products at equal distances on, they are passed as such.
constexpr size_t kMinStrided = 8;

int64_t TilesAlong(int64_t size, int tile) {
  // 32 bits, which most sizes fit, are divided in a third of the time.
  if (size <= std::numeric_limits<int32_t>::max()) {
    const auto x = static_cast<uint32_t>(size);
    const auto y = static_cast<uint32_t>(tile);
    return (x + y - 1) / y;
  }
  return size / tile + (size % tile != 0);
}

uintptr_t AddressOf(const float* p) { return reinterpret_cast<uintptr_t>(p); }

bool IsAligned(const float* x, int64_t ld) {
  return AddressOf(x) % 16 == 0 && ld % 4 == 0;
}

// Whether products have one entry for their shape.
bool AreAlike(const SgemmArgs& x, const SgemmArgs& y) {
  const auto differ = [](const float* p, const float* q) {
    return (AddressOf(p) ^ AddressOf(q)) % 16 != 0 &&
           (AddressOf(p) % 16 == 0 || AddressOf(q) % 16 == 0);
  };
  return x.shape == y.shape && x.lda == y.lda && x.ldb == y.ldb &&
         x.ldc == y.ldc &&
         std::bit_cast<uint32_t>(x.alpha) == std::bit_cast<uint32_t>(y.alpha) &&
         std::bit_cast<uint32_t>(x.beta) == std::bit_cast<uint32_t>(y.beta) &&
         !differ(x.a, y.a) && !differ(x.b, y.b);
}

BatchEntry EntryOf(const SgemmArgs& args) {
  return {AddressOf(args.a), AddressOf(args.b), AddressOf(args.c)};
}

BatchEntry Distance(const SgemmArgs& from, const SgemmArgs& to) {
  return {AddressOf(to.a) - AddressOf(from.a),
          AddressOf(to.b) - AddressOf(from.b),
          AddressOf(to.c) - AddressOf(from.c)};
}

// How many of `products` from the first on are alike and at equal distances.
size_t EqualDistances(std::span<const SgemmArgs* const> products) {
  if (products.size() < 2 || !AreAlike(*products[0], *products[1])) return 1;
  const BatchEntry step = Distance(*products[0], *products[1]);
  size_t count = 2;
  while (count < products.size() &&
         Distance(*products[count - 1], *products[count]) == step &&
         AreAlike(*products[0], *products[count])) {
    ++count;
  }
  return count;
}

void FillShape(const SgemmArgs& args, BatchShape& shape) {
  const GemmShape& s = args.shape;
  const bool has_product = args.alpha != 0 && s.k > 0;
  shape.m = s.m;
  shape.n = s.n;
  shape.k = has_product ? s.k : 0;
  shape.lda = args.lda;
  shape.ldb = args.ldb;
  shape.ldc = args.ldc;
  shape.alpha = has_product ? args.alpha : 0;
  shape.beta = args.beta;
  shape.vector_a = IsAligned(args.a, args.lda);
  shape.vector_b = IsAligned(args.b, args.ldb);
}

// Those of the same transposes together, and the longest first.
void SortForLaunch(std::vector<const SgemmArgs*>& products) {
  using Key = std::pair<int64_t, const SgemmArgs*>;
  std::vector<Key> keys;
  keys.reserve(products.size());
  for (const SgemmArgs* p : products) {
    const int64_t transposes = TransposesOf(p->shape);
    keys.emplace_back((transposes + 1) * (kMaxSmallTileK + 1) - p->shape.k, p);
  }
  std::ranges::sort(keys);
  std::ranges::transform(keys, products.begin(), &Key::second);
}

// Of many products every so manieth is looked at.
struct Sample {
  explicit Sample(std::span<const SgemmArgs* const> products)
      : stride(products.size() / 32 + 1) {
    size_t count = 0;
    for (size_t i = 0; i < products.size(); i += stride, ++count) {
      is_equal = is_equal && products[i]->shape == products[0]->shape;
    }
    share = static_cast<double>(products.size()) / static_cast<double>(count);
  }

  size_t stride;
  double share;  // products that each stands for
  bool is_equal = true;
};

// Whether all blocks of the products probably run at once.
bool IsOneRound(std::span<const SgemmArgs* const> products,
                const SmallTile& tile, int sm_count) {
  const Sample sample(products);
  double blocks = 0;
  for (size_t i = 0; i < products.size(); i += sample.stride) {
    blocks += static_cast<double>(CountTiles(products[i]->shape, tile));
  }
  return blocks * sample.share <= static_cast<double>(tile.blocks) * sm_count;
}

}  // namespace

int64_t CountTiles(const GemmShape& shape, const SmallTile& tile) {
  int64_t tiles;
  const bool overflow = __builtin_mul_overflow(
      TilesAlong(shape.m, tile.m), TilesAlong(shape.n, tile.n), &tiles);
  return overflow ? std::numeric_limits<int64_t>::max() : tiles;
}

int ChooseSmallTile(std::span<const SgemmArgs* const> products, int sm_count) {
  constexpr double kLaunch = 2850;  // cycles
  const Sample sample(products);
  const int transposes = TransposesOf(products[0]->shape);
  int best = 0;
  double best_time = std::numeric_limits<double>::infinity();
  for (int t = 0; t < kSmallTileCount; ++t) {
    const SmallTile& tile = kSmallTiles[t];
    if ((tile.transposes >> transposes & 1) == 0) continue;
    double full = 0;
    double alone = 0;
    double most_tiles = 0;
    for (size_t i = 0; i < products.size(); i += sample.stride) {
      const SgemmArgs& args = *products[i];
      const auto tiles = static_cast<double>(CountTiles(args.shape, tile));
      const auto k = static_cast<double>(args.shape.k);
      const int unaligned =
          !IsAligned(args.a, args.lda) + !IsAligned(args.b, args.ldb);
      full += tiles * (tile.full + k * (tile.full_per_k +
                                        tile.unaligned_per_k * unaligned / 2));
      alone = std::max(alone, tile.alone + k * tile.alone_per_k);
      most_tiles = std::max(most_tiles, tiles);
    }
    if (t > 0 && most_tiles > kMaxSmallTileBlocks) continue;
    full *= sample.share * (sample.is_equal ? 1 : tile.stretch) / sm_count;
    const double time = std::hypot(kLaunch + full, alone);
    if (time < best_time) {
      best_time = time;
      best = t;
    }
  }
  return best;
}

std::vector<AlikeProducts> PartProducts(std::vector<const SgemmArgs*>& products,
                                        int sm_count) {
  if (products.empty()) return {};
  bool is_equal = true;
  bool is_alike = true;  // in transposes
  for (const SgemmArgs* p : products) {
    if (p->shape == products[0]->shape) continue;
    is_equal = false;
    is_alike = TransposesOf(p->shape) == TransposesOf(products[0]->shape);
    if (!is_alike) break;
  }
  if (is_alike) {
    const int tile = ChooseSmallTile(products, sm_count);
    if (!is_equal && !IsOneRound(products, kSmallTiles[tile], sm_count)) {
      SortForLaunch(products);
    }
    return {{products, tile}};
  }
  SortForLaunch(products);
  std::vector<AlikeProducts> parts;
  std::span<const SgemmArgs* const> left = products;
  while (!left.empty()) {
    const auto end = std::ranges::find_if(left, [&](const SgemmArgs* p) {
      return TransposesOf(p->shape) != TransposesOf(left[0]->shape);
    });
    const auto part = left.first(end - left.begin());
    parts.push_back({part, ChooseSmallTile(part, sm_count)});
    left = left.subspan(part.size());
  }
  return parts;
}

BatchPart FillBatchTable(std::span<const SgemmArgs* const> products,
                         const SmallTile& tile, LargeBatchTable& table) {
  BatchPart part = {.products = 0, .blocks = 0};
  bool is_open = false;  // more entries may follow those of the last shape
  while (part.products < products.size()) {
    const auto rest = products.subspan(part.products);
    const SgemmArgs& args = *rest[0];
    const size_t run = EqualDistances(rest);
    const bool strided = run >= kMinStrided;
    const bool joins =
        is_open && !strided && AreAlike(args, *products[part.products - 1]);
    const int64_t tiles = CountTiles(args.shape, tile);
    const int64_t room = (kMaxSmallTileBlocks - part.blocks) / tiles;
    if (room == 0 ||
        !LargeBatchTable::Fits(table.shape_count + (joins ? 0 : 1),
                               table.entry_count + (strided ? 2 : 1))) {
      break;
    }
    if (!joins) {
      BatchShape& shape = table.AddShape();
      FillShape(args, shape);
      shape.first_tile = static_cast<uint32_t>(part.blocks);
      shape.tiles = static_cast<uint32_t>(tiles);
      shape.tiles_n = static_cast<uint32_t>(TilesAlong(args.shape.n, tile.n));
      shape.first_entry = static_cast<uint32_t>(table.entry_count);
      shape.strided = strided;
    }
    table.AddEntry() = EntryOf(args);
    if (strided) table.AddEntry() = Distance(args, *rest[1]);
    is_open = !strided;
    const int64_t taken =
        strided ? std::min(static_cast<int64_t>(run), room) : 1;
    part.products += taken;
    part.blocks += taken * tiles;
  }
  return part;
}

}  // namespace gemmd
