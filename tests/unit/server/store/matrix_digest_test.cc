#include "server/store/matrix_digest.h"

#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/escaping.h"
#include "tests/unit/server/store/store_fixture.h"

namespace gemmd {
namespace {

constexpr size_t kBlock = kDigestBlockBytes;

std::span<const std::byte> Bytes(absl::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

absl::Status AddRange(MatrixDigest& digest, absl::string_view matrix,
                      size_t begin, size_t end) {
  RangeDigest range(begin, end, matrix.size());
  range.Update(Bytes(matrix.substr(begin, end - begin)));
  return digest.Add(std::move(range));
}

// From Python's hashlib:
//   sha256(b"".join(sha256(b[i:i+2**20]).digest()
//                   for i in range(0, len(b), 2**20))).hexdigest()
TEST(MatrixDigestTest, IsWhatOthersCompute) {
  std::string large(3 * kBlock + 12, '\0');
  for (size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<char>(i * 7 + 3);
  }
  const std::pair<std::string, const char*> cases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abcd",
       "7e9c158ecd919fa439a7a214c9fc58b85c3177fb1613bdae41ee695060e11bc6"},
      {large,
       "5f3496c052bd4f2f7b8c1669c02f6acfd9aaf94e4173211a2b3133a08337e0ef"}};
  for (const auto& [matrix, hex] : cases) {
    const std::string wanted = absl::HexStringToBytes(hex);
    EXPECT_EQ(DigestOf(matrix), wanted) << "the oracle of the other tests";
    MatrixDigest digest(matrix.size(), wanted);
    EXPECT_EQ(digest.Matches(), matrix.empty());
    ASSERT_TRUE(AddRange(digest, matrix, 0, matrix.size()).ok());
    EXPECT_TRUE(digest.Matches());
  }
}

// Every way to cut three blocks and a bit at places next to their borders, in
// every order of up to four ranges.
TEST(MatrixDigestTest, DoesNotDependOnHowTheMatrixIsCut) {
  std::string matrix(2 * kBlock + 100, '\0');
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix[i] = static_cast<char>(i * 31 >> 3);
  }
  const std::string wanted = DigestOf(matrix);
  const std::vector<size_t> places = {
      4,          kBlock - 4,     kBlock, kBlock + 4, 2 * kBlock - 4,
      2 * kBlock, 2 * kBlock + 40};
  for (size_t chosen = 0; chosen < (size_t{1} << places.size()); ++chosen) {
    std::vector<size_t> cuts = {0};
    for (size_t i = 0; i < places.size(); ++i) {
      if ((chosen >> i) & 1) cuts.push_back(places[i]);
    }
    cuts.push_back(matrix.size());
    if (cuts.size() > 4) continue;
    std::vector<size_t> order(cuts.size() - 1);
    std::iota(order.begin(), order.end(), size_t{0});
    do {
      MatrixDigest digest(matrix.size(), wanted);
      for (const size_t i : order) {
        EXPECT_FALSE(digest.Matches());
        ASSERT_TRUE(AddRange(digest, matrix, cuts[i], cuts[i + 1]).ok());
      }
      EXPECT_TRUE(digest.Matches());
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(MatrixDigestTest, HoldsABoundedNumberOfCutBlocks) {
  // Every second range is missing, so that no block is ever whole.
  const size_t blocks = 2 * MatrixDigest::kMaxHeldBytes / kBlock + 8;
  const std::string half(kBlock / 2, 'x');
  MatrixDigest digest(blocks * kBlock, std::string(32, 'd'));
  absl::Status status;
  for (size_t i = 0; i < blocks && status.ok(); ++i) {
    RangeDigest range(i * kBlock, i * kBlock + half.size(), blocks * kBlock);
    range.Update(Bytes(half));
    status = digest.Add(std::move(range));
    EXPECT_LE(i * half.size(), MatrixDigest::kMaxHeldBytes);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(MatrixDigestTest, ForgetsTheBlocksThatAreWhole) {
  // More in all than may be held at once.
  const size_t blocks = MatrixDigest::kMaxHeldBytes / kBlock + 2;
  const std::string matrix(blocks * kBlock, 'x');
  MatrixDigest digest(matrix.size(), DigestOf(matrix));
  size_t begin = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t end = i * kBlock + kBlock / 2;
    ASSERT_TRUE(AddRange(digest, matrix, begin, end).ok()) << i;
    begin = end;
  }
  ASSERT_TRUE(AddRange(digest, matrix, begin, matrix.size()).ok());
  EXPECT_TRUE(digest.Matches());
}

}  // namespace
}  // namespace gemmd
