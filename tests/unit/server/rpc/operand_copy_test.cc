#include "server/rpc/operand_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace gemmd {
namespace {

// Copies a [rows, cols] operand whose rows are `ld` apart out of a message in
// slices of up to `most` bytes; element (i, j) is i * 1000 + j, padding 255s.
std::vector<float> Copied(uint64_t rows, uint64_t cols, uint64_t ld,
                          size_t most, bool last_padding, size_t offset) {
  std::vector<uint8_t> message(13, 7);  // what lies before the operand
  const size_t begin = message.size();
  for (uint64_t i = 0; i < rows; ++i) {
    const uint64_t width = i + 1 < rows || last_padding ? ld : cols;
    for (uint64_t j = 0; j < width; ++j) {
      const float value = static_cast<float>(i * 1000 + j);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
      for (int b = 0; b < 4; ++b) message.push_back(j < cols ? bytes[b] : 255);
    }
  }
  std::mt19937_64 random(rows * 31 + cols);
  std::vector<ByteSlice> slices;
  for (ByteSlice rest = message; !rest.empty();) {
    const size_t size = std::min<size_t>(random() % (most + 1), rest.size());
    slices.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  OperandPlan plan;
  plan.source = {begin, message.size() - begin};
  plan.rows = rows;
  plan.cols = cols;
  plan.leading_dimension = ld;
  plan.offset = offset;
  std::vector<float> out(offset / 4 + rows * cols + 1, -1.0f);
  CopyOperand(slices, plan, reinterpret_cast<std::byte*>(out.data()));
  return out;
}

void ExpectPacked(const std::vector<float>& out, uint64_t rows, uint64_t cols,
                  size_t offset) {
  size_t at = 0;
  for (; at < offset / 4; ++at) EXPECT_EQ(out[at], -1.0f);
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t j = 0; j < cols; ++j) {
      EXPECT_EQ(out[at++], static_cast<float>(i * 1000 + j)) << i << ' ' << j;
    }
  }
  EXPECT_EQ(out[at], -1.0f) << "written past the end";
}

TEST(OperandCopyTest, CopiesPackedRowsWhateverTheSlices) {
  for (const size_t most : {1, 3, 7, 64, 100000}) {
    ExpectPacked(Copied(9, 5, 5, most, true, 256), 9, 5, 256);
  }
}

TEST(OperandCopyTest, LeavesPaddingOut) {
  for (const size_t most : {1, 3, 7, 64, 100000}) {
    for (const bool last_padding : {true, false}) {
      ExpectPacked(Copied(9, 5, 8, most, last_padding, 0), 9, 5, 0);
    }
  }
}

TEST(OperandCopyTest, AMatrixWithoutElementsCopiesNothing) {
  ExpectPacked(Copied(0, 5, 8, 7, true, 0), 0, 5, 0);
  ExpectPacked(Copied(5, 0, 8, 7, true, 0), 5, 0, 0);
}

}  // namespace
}  // namespace gemmd
