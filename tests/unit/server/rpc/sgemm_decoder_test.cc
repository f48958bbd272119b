#include "server/rpc/sgemm_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "gemmd/v1/sgemm.pb.h"
#include "tests/fuzz/decoder_differential.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

absl::StatusOr<SgemmFields> Decode(const std::string& message) {
  const ByteSlice slice(reinterpret_cast<const uint8_t*>(message.data()),
                        message.size());
  return DecodeSgemm({&slice, 1});
}

// Refused, by protobuf too, and the error says so.
void ExpectMalformed(const std::string& message) {
  const auto fields = Decode(message);
  EXPECT_EQ(fields.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(fields.status().message()),
              HasSubstr("is not a gemmd.v1.SgemmRequest"));
  EXPECT_TRUE(fields.status()
                  .GetPayload("type.googleapis.com/google.rpc.BadRequest")
                  .has_value());
  EXPECT_FALSE(v1::SgemmRequest().ParseFromString(message));
}

TEST(SgemmDecoderTest, AnEmptyMessageHasNoFields) {
  const auto fields = DecodeSgemm({});
  ASSERT_TRUE(fields.ok());
  EXPECT_FALSE(fields->a.has_value());
  EXPECT_FALSE(fields->alpha.has_value());
}

TEST(SgemmDecoderTest, DataIsNotedNotCopied) {
  v1::SgemmRequest request;
  request.mutable_a()->set_rows(1);
  request.mutable_a()->set_data("0123");
  const std::string message = request.SerializeAsString();
  const auto fields = Decode(message);
  ASSERT_TRUE(fields.ok()) << fields.status();
  const ByteRange range = std::get<ByteRange>(fields->a->source);
  EXPECT_EQ(message.substr(range.offset, range.size), "0123");
}

TEST(SgemmDecoderTest, SplitOperandsMerge) {
  v1::SgemmRequest first, second;
  first.mutable_a()->set_rows(7);
  first.mutable_a()->set_data("0123");
  second.mutable_a()->set_cols(3);
  second.mutable_a()->set_matrix_id("m");
  const auto fields =
      Decode(first.SerializeAsString() + second.SerializeAsString());
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_EQ(fields->a->rows, 7);
  EXPECT_EQ(fields->a->cols, 3);
  EXPECT_EQ(std::get<MatrixIdField>(fields->a->source).id.head, "m");
}

TEST(SgemmDecoderTest, OfLongTextOnlyTheBeginningIsKept) {
  v1::SgemmRequest request;
  request.set_request_id(std::string(100000, 'x'));
  const auto fields = Decode(request.SerializeAsString());
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_EQ(fields->request_id.size, 100000);
  EXPECT_EQ(fields->request_id.head.size(), ShortText::kKeptBytes);
}

TEST(SgemmDecoderTest, RefusesGarbage) {
  ExpectMalformed("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff");
  ExpectMalformed(std::string("\x00", 1));  // field number 0
  ExpectMalformed("\x0f");                  // wire type 7
  ExpectMalformed("\x4a\x05x");             // a length past the end
  ExpectMalformed("\x42\x02\xc3\x28");      // request_id is not UTF-8
  ExpectMalformed("\x0c");                  // the end of no group
}

TEST(SgemmDecoderTest, RefusesTruncationAnywhereInTheBulk) {
  v1::SgemmRequest request;
  request.mutable_a()->set_data(std::string(40, 'd'));
  const std::string message = request.SerializeAsString();
  for (size_t size = 1; size < message.size(); ++size) {
    ExpectMalformed(message.substr(0, size));
  }
}

TEST(SgemmDecoderTest, RefusesThreeGibibytesInTwentyBytes) {
  // a { data: 3 GiB }, and then nothing.
  const std::string claim("\xa2\x06\x0e\xa2\x06\x80\x80\x80\x80\x0c", 10);
  ExpectMalformed(claim + std::string(10, 'x'));
}

TEST(SgemmDecoderTest, RefusesTagsAndLengthsOfMoreThanFiveBytes) {
  ExpectMalformed(std::string("\x88\x80\x80\x80\x80\x00\x01", 7));
  ExpectMalformed(std::string("\x42\x80\x80\x80\x80\x80\x00", 7));
}

TEST(SgemmDecoderTest, RefusesASubMessageLargerThanItsParent) {
  // output { resident { 9 bytes } } in an output of 4 bytes, with enough
  // behind it.
  ExpectMalformed(std::string("\x4a\x04\x12\x09xx", 6) + std::string(9, 'x'));
}

TEST(SgemmDecoderTest, RefusesNestingDeeperThanProtobuf) {
  const auto groups = [](int depth) {
    return std::string(depth, '\x5b') + std::string(depth, '\x5c');
  };
  EXPECT_TRUE(Decode(groups(100)).ok());
  ExpectMalformed(groups(101));
  // An operand is a level too.
  const auto in_operand = [&](int depth) {
    std::string operand("\xa2\x06");
    operand += static_cast<char>(0x80 | (2 * depth & 0x7f));
    operand += static_cast<char>(2 * depth >> 7);
    return operand + groups(depth);
  };
  EXPECT_TRUE(Decode(in_operand(99)).ok());
  ExpectMalformed(in_operand(100));
}

TEST(SgemmDecoderTest, ErrorSaysWhereTheMessageBreaks) {
  EXPECT_THAT(std::string(Decode("\x08\x01\x0f").status().message()),
              HasSubstr("3 bytes is not a gemmd.v1.SgemmRequest: its encoding "
                        "breaks at byte 3"));
}

TEST(SgemmDecoderTest, SlicesOfAnySizeReadAlike) {
  v1::SgemmRequest request;
  request.set_kernel("a_kernel\u20ac");
  request.mutable_b()->set_rows(1u << 30);
  request.mutable_b()->set_data(std::string(300, 'd'));
  const std::string message = request.SerializeAsString();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto slices = CutIntoSlices(
        {reinterpret_cast<const uint8_t*>(message.data()), message.size()},
        seed);
    const auto fields = DecodeSgemm(slices);
    ASSERT_TRUE(fields.ok()) << seed;
    EXPECT_EQ(fields->kernel->head, request.kernel());
    EXPECT_EQ(std::get<ByteRange>(fields->b->source),
              (ByteRange{message.size() - 300, 300}));
  }
}

}  // namespace
}  // namespace gemmd
