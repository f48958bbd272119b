#include "server/execute/range_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gemmd {
namespace {

constexpr size_t kUnit = RangeAllocator::kAlignment;

TEST(RangeAllocatorTest, TakesTheSmallestPieceThatFits) {
  RangeAllocator ranges(10 * kUnit);
  const size_t a = *ranges.Allocate(3 * kUnit);
  const size_t b = *ranges.Allocate(1);  // one unit
  const size_t c = *ranges.Allocate(2 * kUnit);
  ASSERT_TRUE(ranges.Allocate(kUnit).has_value());
  EXPECT_EQ(ranges.used(), 7 * kUnit);
  ranges.Free(a, 3 * kUnit);  // free: [0, 3) and [7, 10)
  ranges.Free(c, 2 * kUnit);  // and [4, 6)
  EXPECT_EQ(ranges.Allocate(2 * kUnit), c);
  EXPECT_EQ(ranges.Allocate(3 * kUnit), a) << "lowest address among equals";
  ranges.Free(b, 1);
  EXPECT_EQ(ranges.Allocate(kUnit), b);
}

TEST(RangeAllocatorTest, JoinsWhatComesBackWithBothNeighbours) {
  RangeAllocator ranges(3 * kUnit);
  const size_t a = *ranges.Allocate(kUnit);
  const size_t b = *ranges.Allocate(kUnit);
  const size_t c = *ranges.Allocate(kUnit);
  EXPECT_EQ(ranges.largest_free(), 0u);
  ranges.Free(a, kUnit);
  ranges.Free(c, kUnit);
  EXPECT_EQ(ranges.largest_free(), kUnit);
  EXPECT_FALSE(ranges.Allocate(2 * kUnit).has_value());
  ranges.Free(b, kUnit);
  EXPECT_EQ(ranges.largest_free(), 3 * kUnit);
  EXPECT_TRUE(ranges.Allocate(3 * kUnit).has_value());
}

TEST(RangeAllocatorTest, RefusesWhatCannotFitWithoutOverflow) {
  RangeAllocator ranges(4 * kUnit + 17);
  EXPECT_EQ(ranges.capacity(), 4 * kUnit);
  EXPECT_FALSE(ranges.Allocate(4 * kUnit + 1).has_value());
  EXPECT_FALSE(ranges.Allocate(SIZE_MAX).has_value());
  EXPECT_FALSE(ranges.Allocate(SIZE_MAX - kUnit / 2).has_value());
  EXPECT_EQ(ranges.used(), 0u);
  RangeAllocator none(kUnit - 1);
  EXPECT_FALSE(none.Allocate(1).has_value());
  EXPECT_EQ(none.largest_free(), 0u);
}

// Against a map of the range, unit by unit: pieces are aligned and disjoint, a
// refusal is right, and `largest_free` and `used` are true.
TEST(RangeAllocatorTest, AgreesWithAMapOfTheRange) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const size_t units = 1 + random() % 64;
    RangeAllocator ranges(units * kUnit);
    std::vector<bool> taken(units, false);
    struct Piece {
      size_t offset;
      size_t size;
    };
    std::vector<Piece> pieces;
    const auto longest_free_run = [&] {
      size_t best = 0;
      size_t run = 0;
      for (const bool unit : taken) {
        run = unit ? 0 : run + 1;
        best = std::max(best, run);
      }
      return best * kUnit;
    };
    for (int step = 0; step < 300; ++step) {
      if (random() % 2 == 0 || pieces.empty()) {
        const size_t size = 1 + random() % (units * kUnit);
        const std::optional<size_t> offset = ranges.Allocate(size);
        ASSERT_EQ(offset.has_value(),
                  RangeAllocator::RoundUp(size) <= longest_free_run());
        if (!offset) continue;
        ASSERT_EQ(*offset % kUnit, 0u);
        ASSERT_LE(*offset + size, units * kUnit);
        for (size_t byte = *offset; byte < *offset + size; byte += kUnit) {
          ASSERT_FALSE(taken[byte / kUnit]) << "handed out twice";
          taken[byte / kUnit] = true;
        }
        pieces.push_back({*offset, size});
      } else {
        const size_t i = random() % pieces.size();
        const Piece piece = pieces[i];
        pieces.erase(pieces.begin() + static_cast<ptrdiff_t>(i));
        ranges.Free(piece.offset, piece.size);
        for (size_t byte = piece.offset; byte < piece.offset + piece.size;
             byte += kUnit) {
          taken[byte / kUnit] = false;
        }
      }
      ASSERT_EQ(ranges.largest_free(), longest_free_run());
      ASSERT_EQ(ranges.used(), kUnit * static_cast<size_t>(std::count(
                                           taken.begin(), taken.end(), true)));
    }
  }
}

}  // namespace
}  // namespace gemmd
