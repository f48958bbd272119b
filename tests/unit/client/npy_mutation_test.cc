// Files of .npy that have been damaged at random.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/npy_header.h"
#include "gemmd/npy.h"
#include "tests/unit/client/npy_files.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Changes 1 to 4 bytes of `text`, to anything and to what means something.
std::string Mutate(std::string text, std::mt19937& random) {
  const std::string alphabet = "'\"{}()[],: \n<>f4TrueFalse0123456789LNUMPY";
  for (int i = 1 + random() % 4; i > 0; --i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = alphabet[random() % alphabet.size()];
        break;
      case 2:
        text.erase(at, 1 + random() % 3);
        break;
      default:
        text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    if (text.empty()) text = "x";
  }
  return text;
}

// No mutation of a good file crashes, hangs or asks for absurd memory; what is
// accepted is as large as it claims.
TEST_F(NpyTest, AcceptsOrRefusesEveryMutation) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string good =
      File(1, Dictionary("<f4", "False", kSix), SixNumbers());
  for (int round = 0; round < 300; ++round) {
    const std::string path = Write(Mutate(good, random));
    absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
    if (matrix.ok()) {
      EXPECT_THAT(matrix->rows() * matrix->cols(), AnyOf(0, 6));
    } else {
      EXPECT_THAT(std::string(matrix.status().message()),
                  AllOf(StartsWith(path), Not(HasSubstr("\n"))));
    }
  }
}

TEST_F(NpyTest, ReadsOrRefusesEveryMutatedHeader) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string good = Dictionary("<f4", "False", kSix);
  int read = 0;
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = Mutate(good, random);
    absl::StatusOr<client::NpyHeader> header = client::ParseNpyDictionary(text);
    if (header.ok()) {
      ++read;
    } else {
      EXPECT_THAT(std::string(header.status().message()),
                  AllOf(HasSubstr("header"), Not(HasSubstr("\n"))))
          << text;
    }
  }
  EXPECT_GT(read, 100);  // of "(2, 3)" comes "(7, 3)", and spaces are free
}

}  // namespace
}  // namespace gemmd
