#include "client/sgemm_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace gemmd::client {
namespace {

using ::testing::HasSubstr;

float memory[1];  // checks look at no number

MatrixView View(int64_t rows, int64_t cols, int64_t leading_dimension = 0) {
  return {memory, rows, cols, leading_dimension};
}

void ExpectRefused(const SgemmCall& call, absl::StatusCode code,
                   const std::vector<std::string>& words) {
  const absl::Status status = CheckCall(call).status();
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

void ExpectInvalid(const SgemmCall& call,
                   const std::vector<std::string>& words) {
  ExpectRefused(call, absl::StatusCode::kInvalidArgument, words);
}

TEST(SgemmCheckTest, FindsTheSizesForEveryTranspose) {
  for (bool ta : {false, true}) {
    for (bool tb : {false, true}) {
      const auto size = CheckCall({.a = ta ? View(4, 2) : View(2, 4),
                                   .b = tb ? View(3, 4) : View(4, 3),
                                   .transpose_a = ta,
                                   .transpose_b = tb});
      ASSERT_TRUE(size.ok()) << size.status();
      EXPECT_EQ(size->m, 2);
      EXPECT_EQ(size->n, 3);
      EXPECT_EQ(size->k, 4);
    }
  }
}

TEST(SgemmCheckTest, RefusesShapesThatDoNotFit) {
  ExpectInvalid({.a = View(2, 4), .b = View(5, 3)},
                {"op(A) is 2 x 4", "op(B) is 5 x 3"});
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .transpose_b = true},
                {"op(B) is 3 x 4"});
}

TEST(SgemmCheckTest, RefusesMatricesThatCannotBe) {
  ExpectInvalid({.a = View(-1, 4), .b = View(4, 3)}, {"a is -1 x 4"});
  ExpectInvalid({.a = View(2, 4), .b = View(4, -3)}, {"b is 4 x -3"});
  ExpectInvalid({.a = View(2, 4, 3), .b = View(4, 3)},
                {"a has the leading dimension 3", "at least its 4"});
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3, -3)},
                {"leading dimension -3"});
  ExpectInvalid({.a = {nullptr, 2, 4, 0}, .b = View(4, 3)}, {"no data"});
  const int64_t huge = std::numeric_limits<int64_t>::max();
  ExpectInvalid({.a = View(huge, huge), .b = View(huge, 1)}, {"memory"});
  ExpectInvalid({.a = View(2, 1, huge), .b = View(1, 1)}, {"memory"});
}

TEST(SgemmCheckTest, CIsWantedExactlyWithBeta) {
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .beta = 0.5f},
                {"beta is 0.5", "c of 2 x 3"});
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .c = View(2, 3)},
                {"beta is 0"});
  ExpectInvalid(
      {.a = View(2, 4), .b = View(4, 3), .c = View(3, 2), .beta = 1.0f},
      {"c is 3 x 2", "product is 2 x 3"});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .beta = nan}, {"c of"});
  EXPECT_TRUE(
      CheckCall(
          {.a = View(2, 4), .b = View(4, 3), .c = View(2, 3, 9), .beta = nan})
          .ok());
}

TEST(SgemmCheckTest, ProductsWithNothingInThemAreValid) {
  EXPECT_TRUE(CheckCall({.a = {nullptr, 0, 4, 0}, .b = View(4, 3)}).ok());
  EXPECT_TRUE(
      CheckCall({.a = {nullptr, 2, 0, 0}, .b = {nullptr, 0, 3, 0}}).ok());
  EXPECT_TRUE(
      CheckCall({.a = {nullptr, 0, 4, 0}, .b = View(4, 3), .beta = 1.0f}).ok());
}

TEST(SgemmCheckTest, TheOutputHasTheProductsShape) {
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .output = {memory, 2, 4, 0}},
                {"output is 2 x 4", "product is 2 x 3"});
  ExpectInvalid({.a = View(2, 4), .b = View(4, 3), .output = {memory, 2, 3, 2}},
                {"output has the leading dimension 2"});
}

TEST(SgemmCheckTest, AnySizeIsValidThatMemoryCanHold) {
  const int64_t large = int64_t{1} << 20;
  EXPECT_TRUE(
      CheckCall({.a = View(large, large), .b = View(large, large)}).ok());
  ExpectInvalid(
      {.a = View(int64_t{1} << 62, 0), .b = View(0, int64_t{1} << 62)},
      {"the product is", "memory"});
}

TEST(SgemmCheckTest, OutputsOfTwoKindsContradict) {
  ExpectInvalid({.a = View(2, 4),
                 .b = View(4, 3),
                 .output = {memory, 2, 3, 0},
                 .resident_output = ResidentOutput{}},
                {"output", "resident_output", "one of them"});
  ResidentMatrix none;
  ExpectInvalid({.a = View(2, 4),
                 .b = View(4, 3),
                 .resident_output = ResidentOutput{.into = &none}},
                {"into refers to no matrix"});
  ExpectInvalid({.a = View(2, 4),
                 .b = View(4, 3),
                 .resident_output = ResidentOutput{.id = "no spaces"}},
                {"no spaces", "A-Za-z0-9"});
}

TEST(SgemmCheckTest, RefusesARequestIdThatIsTooLong) {
  ExpectInvalid(
      {.a = View(2, 4), .b = View(4, 3), .request_id = std::string(65, 'x')},
      {"65 bytes", "at most 64"});
}

}  // namespace
}  // namespace gemmd::client
