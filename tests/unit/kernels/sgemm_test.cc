#include "kernels/sgemm.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

class ValidateArgsTest : public testing::Test {
 protected:
  SgemmArgs Valid() {
    return {.shape = {.m = 4, .n = 3, .k = 5},
            .a = memory_.data(),
            .lda = 5,
            .b = memory_.data() + 100,
            .ldb = 3,
            .c = memory_.data() + 200,
            .ldc = 3};
  }

  void ExpectError(const SgemmArgs& args, const std::string& message) {
    const absl::Status status = ValidateArgs(args);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  std::vector<float> memory_ = std::vector<float>(300);
};

TEST_F(ValidateArgsTest, AcceptsWhatHangsTogether) {
  EXPECT_TRUE(ValidateArgs(Valid()).ok());
}

TEST_F(ValidateArgsTest, AcceptsEmptyProductsOfNullPointers) {
  for (const GemmShape& shape : {GemmShape{0, 3, 5}, GemmShape{4, 0, 5}}) {
    SgemmArgs args = Valid();
    args.shape = shape;
    args.a = args.b = args.c = nullptr;
    EXPECT_TRUE(ValidateArgs(args).ok());
  }
}

TEST_F(ValidateArgsTest, AcceptsNullOperandsThatAreNotRead) {
  SgemmArgs no_alpha = Valid();
  no_alpha.alpha = 0;
  no_alpha.a = no_alpha.b = nullptr;
  EXPECT_TRUE(ValidateArgs(no_alpha).ok());
  SgemmArgs no_k = Valid();
  no_k.shape.k = 0;
  no_k.a = no_k.b = nullptr;
  EXPECT_TRUE(ValidateArgs(no_k).ok());
}

TEST_F(ValidateArgsTest, NamesANegativeSize) {
  SgemmArgs args = Valid();
  args.shape.n = -1;
  ExpectError(args, "n is -1; it must be 0 or more");
}

TEST_F(ValidateArgsTest, NamesALeadingDimensionThatIsTooSmall) {
  SgemmArgs args = Valid();
  args.lda = 4;
  ExpectError(args, "leading dimension of a is 4; its rows have 5 elements");
  args = Valid();
  args.shape.transpose_b = true;
  ExpectError(args, "leading dimension of b is 3; its rows have 5 elements");
  // cuBLAS calls this one "parameter 13".
  args = Valid();
  args.ldc = 2;
  ExpectError(args, "leading dimension of c is 2; its rows have 3 elements");
}

TEST_F(ValidateArgsTest, RefusesBytesPast63Bits) {
  SgemmArgs args = Valid();
  args.shape.m = int64_t{1} << 40;
  args.lda = int64_t{1} << 30;
  ExpectError(args, "a has 1099511627776 rows");
}

TEST_F(ValidateArgsTest, NamesANullOperandThatIsRead) {
  SgemmArgs args = Valid();
  args.b = nullptr;
  ExpectError(args, "b is null; 5 x 3 elements are needed");
  args = Valid();
  args.alpha = 0;
  args.c = nullptr;
  ExpectError(args, "c is null; 4 x 3 elements are needed");
}

TEST_F(ValidateArgsTest, NamesAMisalignedOperand) {
  SgemmArgs args = Valid();
  args.a = reinterpret_cast<const float*>(
      reinterpret_cast<const char*>(memory_.data()) + 2);
  ExpectError(args, "a is not aligned to 4 bytes");
}

TEST(GemmShapeTest, CountsOperationsPast63Bits) {
  const int64_t n = int64_t{1} << 30;
  EXPECT_EQ((GemmShape{n, n, n}.flops()), 0x1p91);
}

}  // namespace
}  // namespace gemmd
