#include "server/rpc/sgemm_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "absl/strings/cord.h"
#include "gemmd/v1/sgemm.pb.h"
#include "google/rpc/error_details.pb.h"
#include "proto/error_details.h"
#include "server/rpc/sgemm_decoder.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

absl::StatusOr<SgemmPlan> Plan(const v1::SgemmRequest& request,
                               const SgemmLimits& limits = {}) {
  const std::string message = request.SerializeAsString();
  const ByteSlice slice(reinterpret_cast<const uint8_t*>(message.data()),
                        message.size());
  const auto fields = DecodeSgemm({&slice, 1});
  if (!fields.ok()) return fields.status();
  return PlanSgemm(*fields, limits);
}

void SetOperand(v1::Operand& operand, uint64_t rows, uint64_t cols) {
  operand.set_rows(rows);
  operand.set_cols(cols);
  operand.set_data(std::string(rows * cols * 4, 'd'));
}

// A [2, 3] * B [3, 4].
v1::SgemmRequest GoodRequest() {
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 2, 3);
  SetOperand(*request.mutable_b(), 3, 4);
  return request;
}

// The request, changed, is INVALID_ARGUMENT for `field` with `text` in it.
void ExpectInvalid(const std::string& field, const std::string& text,
                   const std::function<void(v1::SgemmRequest&)>& change) {
  v1::SgemmRequest request = GoodRequest();
  change(request);
  const auto plan = Plan(request);
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument)
      << field << ": " << plan.status();
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr(text));
  const auto payload =
      plan.status().GetPayload("type.googleapis.com/google.rpc.BadRequest");
  ASSERT_TRUE(payload.has_value());
  google::rpc::BadRequest detail;
  ASSERT_TRUE(detail.ParseFromString(std::string(*payload)));
  ASSERT_EQ(detail.field_violations_size(), 1);
  EXPECT_EQ(detail.field_violations(0).field(), field);
  EXPECT_EQ(detail.field_violations(0).description(), plan.status().message());
}

TEST(SgemmValidationTest, PlansShapeAndMemory) {
  v1::SgemmRequest request = GoodRequest();
  request.set_alpha(2.0f);
  request.set_precision(v1::PRECISION_TF32);
  request.set_priority(v1::PRIORITY_BULK);
  request.set_kernel("openblas");
  const auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shape, (GemmShape{.m = 2, .n = 4, .k = 3}));
  EXPECT_EQ(plan->alpha, 2.0f);
  EXPECT_EQ(plan->beta, 0.0f);
  EXPECT_EQ(plan->precision, Precision::kTf32);
  EXPECT_EQ(plan->priority, Priority::kBulk);
  EXPECT_EQ(plan->kernel, "openblas");
  EXPECT_EQ(plan->a.offset, 0);
  EXPECT_EQ(plan->b.offset, 256);  // A is 24 bytes
  EXPECT_EQ(plan->input_bytes, 256 + 48);
  EXPECT_EQ(plan->output_bytes, 32);
  EXPECT_TRUE(plan->reads_inputs());
  EXPECT_FALSE(plan->reads_c());
}

TEST(SgemmValidationTest, DefaultsAreThoseOfTheContract) {
  const auto plan = Plan(GoodRequest());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->alpha, 1.0f);
  EXPECT_EQ(plan->beta, 0.0f);
  EXPECT_EQ(plan->precision, Precision::kFp32);
  EXPECT_EQ(plan->priority, Priority::kInteractive);
  EXPECT_EQ(plan->kernel, "");
}

TEST(SgemmValidationTest, TransposesSwapRowsAndColumns) {
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 3, 2);
  SetOperand(*request.mutable_b(), 4, 3);
  request.set_transpose_a(true);
  request.set_transpose_b(true);
  const auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(
      plan->shape,
      (GemmShape{
          .m = 2, .n = 4, .k = 3, .transpose_a = true, .transpose_b = true}));
}

TEST(SgemmValidationTest, TheLastRowsPaddingMayBeLeftOff) {
  for (const int values : {16, 13}) {  // 2 rows of 8, or 8 + 5
    v1::SgemmRequest request;
    SetOperand(*request.mutable_b(), 5, 1);
    request.mutable_a()->set_rows(2);
    request.mutable_a()->set_cols(5);
    request.mutable_a()->set_leading_dimension(8);
    request.mutable_a()->set_data(std::string(values * 4, 'd'));
    const auto plan = Plan(request);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->a.leading_dimension, 8);
    EXPECT_EQ(plan->a.packed_bytes(), 40);  // padding is not staged
  }
}

TEST(SgemmValidationTest, WhatIsNotReadIsNotStaged) {
  v1::SgemmRequest request = GoodRequest();
  request.set_alpha(0.0f);
  auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->reads_inputs());
  EXPECT_EQ(plan->output_bytes, 32);

  SetOperand(*request.mutable_a(), 2, 0);
  SetOperand(*request.mutable_b(), 0, 4);
  request.clear_alpha();
  request.set_beta(0.5f);
  SetOperand(*request.mutable_c(), 2, 4);
  plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->reads_inputs());
  EXPECT_TRUE(plan->reads_c());
}

TEST(SgemmValidationTest, EmptyProductsAreValid) {
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 0, 3);
  SetOperand(*request.mutable_b(), 3, 4);
  const auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shape.m, 0);
  EXPECT_EQ(plan->input_bytes, 0);
  EXPECT_EQ(plan->output_bytes, 0);
}

TEST(SgemmValidationTest, AMatrixWithoutElementsNeedsNoBytesWhateverItsRows) {
  v1::SgemmRequest request;
  request.mutable_a()->set_rows(uint64_t{1} << 62);
  request.mutable_a()->set_leading_dimension(1);
  request.mutable_a()->set_data("");
  SetOperand(*request.mutable_b(), 0, 0);
  const auto plan = Plan(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shape.m, int64_t{1} << 62);
}

TEST(SgemmValidationTest, ANanBetaReadsC) {
  v1::SgemmRequest request = GoodRequest();
  request.set_beta(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kInvalidArgument);
  SetOperand(*request.mutable_c(), 2, 4);
  EXPECT_TRUE(Plan(request).ok());
  request.set_beta(-0.0f);
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SgemmValidationTest, RefusesAWrongPayloadLength) {
  ExpectInvalid("a.data", "a.data has 12 bytes; rows * cols * 4 = 24",
                [](auto& r) { r.mutable_a()->set_data("123456789012"); });
  ExpectInvalid("b.data", "b.data has 52 bytes; rows * cols * 4 = 48",
                [](auto& r) { r.mutable_b()->mutable_data()->append("1234"); });
  ExpectInvalid(
      "a.data",
      "a.data has 24 bytes; rows * leading_dimension * 4 = 40, or 32 without "
      "the padding of the last row",
      [](auto& r) { r.mutable_a()->set_leading_dimension(5); });
}

TEST(SgemmValidationTest, RefusesSizesWhoseProductOverflows) {
  ExpectInvalid("a.data", "are more than 2^64 bytes", [](auto& r) {
    r.mutable_a()->set_rows(uint64_t{1} << 32);
    r.mutable_a()->set_cols(uint64_t{1} << 31);
  });
  // 2^62 values: the bytes wrap to 0.
  ExpectInvalid("a.data", "are more than 2^64 bytes", [](auto& r) {
    r.mutable_a()->set_rows(uint64_t{1} << 31);
    r.mutable_a()->set_cols(uint64_t{1} << 31);
    r.mutable_a()->set_data("");
  });
  ExpectInvalid("a.data", "are more than 2^64 bytes", [](auto& r) {
    r.mutable_a()->set_leading_dimension(uint64_t{1} << 62);
  });
  ExpectInvalid("a.rows", "a.rows is 18446744073709551615; at most",
                [](auto& r) { r.mutable_a()->set_rows(~uint64_t{0}); });
  ExpectInvalid("b.cols", "b.cols is 18446744073709551615; at most",
                [](auto& r) { r.mutable_b()->set_cols(~uint64_t{0}); });
}

TEST(SgemmValidationTest, RefusesThreeGibibytesInAFewBytes) {
  ExpectInvalid("a.data", "a.data has 4 bytes; rows * cols * 4 = 3221225472",
                [](auto& r) {
                  r.mutable_a()->set_rows(uint64_t{3} << 14);
                  r.mutable_a()->set_cols(uint64_t{1} << 14);
                  r.mutable_a()->set_data("data");
                });
}

TEST(SgemmValidationTest, RefusesALeadingDimensionBelowARow) {
  ExpectInvalid("a.leading_dimension",
                "a.leading_dimension is 2; at least 3 (one row), or 0",
                [](auto& r) { r.mutable_a()->set_leading_dimension(2); });
}

TEST(SgemmValidationTest, RefusesShapesThatDoNotFit) {
  ExpectInvalid("b", "op(A) is 2 x 3 and op(B) is 5 x 4",
                [](auto& r) { SetOperand(*r.mutable_b(), 5, 4); });
  ExpectInvalid("b", "op(A) is 3 x 2 and op(B) is 3 x 4",
                [](auto& r) { r.set_transpose_a(true); });
  ExpectInvalid("c", "c is 4 x 2; the product is 2 x 4", [](auto& r) {
    r.set_beta(1.0f);
    SetOperand(*r.mutable_c(), 4, 2);
  });
}

TEST(SgemmValidationTest, WantsCExactlyWhenBetaIsNotZero) {
  ExpectInvalid("c", "c is missing; beta is 2",
                [](auto& r) { r.set_beta(2.0f); });
  ExpectInvalid("c", "c is set but beta is 0",
                [](auto& r) { SetOperand(*r.mutable_c(), 2, 4); });
}

TEST(SgemmValidationTest, RefusesMissingOperands) {
  ExpectInvalid("a", "a is missing", [](auto& r) { r.clear_a(); });
  ExpectInvalid("b", "b is missing", [](auto& r) { r.clear_b(); });
  ExpectInvalid("a", "a has none of data",
                [](auto& r) { r.mutable_a()->clear_data(); });
}

TEST(SgemmValidationTest, RefusesUnknownEnums) {
  ExpectInvalid("precision", "precision is 77; 0 to 3 are known",
                [](auto& r) { r.set_precision(v1::Precision(77)); });
  ExpectInvalid("precision", "precision is -1",
                [](auto& r) { r.set_precision(v1::Precision(-1)); });
  ExpectInvalid("priority", "priority is 3; 0 to 2 are known",
                [](auto& r) { r.set_priority(v1::Priority(3)); });
}

TEST(SgemmValidationTest, RefusesLongTexts) {
  ExpectInvalid("request_id", "request_id has 65 bytes; at most 64",
                [](auto& r) { r.set_request_id(std::string(65, 'x')); });
  ExpectInvalid("kernel", "kernel has 1000 bytes; at most 64",
                [](auto& r) { r.set_kernel(std::string(1000, 'x')); });
}

TEST(SgemmValidationTest, RefusesBadMatrixIds) {
  ExpectInvalid("a.matrix_id", "a character outside [A-Za-z0-9._-]",
                [](auto& r) { r.mutable_a()->set_matrix_id("a/b"); });
  ExpectInvalid("a.matrix_id", "a.matrix_id is empty",
                [](auto& r) { r.mutable_a()->set_matrix_id(""); });
  ExpectInvalid("output.resident.matrix_id", "has 129 bytes; at most 128",
                [](auto& r) {
                  r.mutable_output()->mutable_resident()->set_matrix_id(
                      std::string(129, 'x'));
                });
}

TEST(SgemmValidationTest, RefusesBadLifetimesAndSlices) {
  ExpectInvalid("output.resident.ttl", "seconds -1", [](auto& r) {
    r.mutable_output()->mutable_resident()->mutable_ttl()->set_seconds(-1);
  });
  ExpectInvalid("output.resident.ttl", "seconds 0 and nanos 0", [](auto& r) {
    r.mutable_output()->mutable_resident()->mutable_ttl();
  });
  ExpectInvalid("output.resident.ttl", "nanos 1000000000", [](auto& r) {
    r.mutable_output()->mutable_resident()->mutable_ttl()->set_nanos(
        1000000000);
  });
  ExpectInvalid("b.shared_memory.region_id", "has 3 bytes", [](auto& r) {
    r.mutable_b()->mutable_shared_memory()->set_region_id("abc");
  });
  ExpectInvalid("b.shared_memory.offset", "a multiple of 4", [](auto& r) {
    auto* slice = r.mutable_b()->mutable_shared_memory();
    slice->set_region_id(std::string(16, 'r'));
    slice->set_offset(6);
  });
}

TEST(SgemmValidationTest, WhatIsNotInlineIsUnimplemented) {
  v1::SgemmRequest request = GoodRequest();
  request.mutable_a()->set_matrix_id("weights");
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kUnimplemented);
  request = GoodRequest();
  request.mutable_b()->mutable_shared_memory()->set_region_id(
      std::string(16, 'r'));
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kUnimplemented);
  request = GoodRequest();
  request.mutable_output()->mutable_resident();
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kUnimplemented);
  request = GoodRequest();
  request.mutable_output()
      ->mutable_shared_memory()
      ->mutable_slice()
      ->set_region_id(std::string(16, 'r'));
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kUnimplemented);
}

constexpr SgemmLimits kEverywhere = {.resident = true, .shared_memory = true};

TEST(SgemmValidationTest, WhatIsElsewhereTakesNoStagingMemory) {
  v1::SgemmRequest request = GoodRequest();
  const auto inlined = Plan(request);
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  request.mutable_a()->set_leading_dimension(0);
  request.mutable_a()->set_matrix_id("weights");
  auto plan = Plan(request, kEverywhere);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->shape, inlined->shape);
  EXPECT_EQ(plan->a.matrix_id, "weights");
  EXPECT_EQ(plan->b.offset, 0);
  EXPECT_EQ(plan->input_bytes, inlined->b.packed_bytes());
  EXPECT_EQ(plan->output_bytes, inlined->output_bytes);
  EXPECT_FALSE(plan->in_place());
  request.mutable_output()->mutable_resident()->set_matrix_id("product");
  plan = Plan(request, kEverywhere);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->output_bytes, 0);
  EXPECT_FALSE(plan->in_place());
  request.mutable_output()->mutable_resident()->set_matrix_id("weights");
  plan = Plan(request, kEverywhere);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->in_place());
}

TEST(SgemmValidationTest, AddsToSharedMemoryWhereCIsTheProduct) {
  v1::SgemmRequest request = GoodRequest();
  SetOperand(*request.mutable_c(), 2, 4);  // 32 bytes
  const std::string region(16, 'r');
  const auto place = [&](v1::SharedMemorySlice& slice, uint64_t offset) {
    slice.set_region_id(region);
    slice.set_offset(offset);
  };
  place(*request.mutable_c()->mutable_shared_memory(), 64);
  auto& to = *request.mutable_output()->mutable_shared_memory();
  request.set_beta(1.0f);
  for (const uint64_t offset : {32, 64, 96}) {
    place(*to.mutable_slice(), offset);
    const auto plan = Plan(request, kEverywhere);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->adds_to_shared_memory(), offset == 64) << offset;
  }
}

TEST(SgemmValidationTest, AnInlineCOfAnOutputElsewhereIsStagedAsAnInput) {
  v1::SgemmRequest request = GoodRequest();
  request.set_beta(1.0f);
  SetOperand(*request.mutable_c(), 2, 4);
  const auto inlined = Plan(request);
  ASSERT_TRUE(inlined.ok()) << inlined.status();
  EXPECT_EQ(inlined->input_bytes, 256 + 48);
  request.mutable_output()->mutable_resident();
  const auto plan = Plan(request, kEverywhere);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->c.offset, 512);
  EXPECT_EQ(plan->input_bytes, 512 + 32);
  EXPECT_EQ(plan->output_bytes, 0);
}

TEST(SgemmValidationTest, AResidentProductMayBeLargerThanAnAnswer) {
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 256, 1);
  SetOperand(*request.mutable_b(), 1, 256);
  request.mutable_output()->mutable_resident();
  SgemmLimits limits = kEverywhere;
  limits.max_inline_bytes = 4096;
  EXPECT_TRUE(Plan(request, limits).ok());
}

TEST(SgemmValidationTest, SharedPlacesEndWithTheirLastElement) {
  v1::SgemmRequest request = GoodRequest();
  auto& slice = *request.mutable_a()->mutable_shared_memory();
  slice.set_region_id(std::string(16, 'r'));
  slice.set_offset(40);
  request.mutable_a()->set_leading_dimension(10);
  const auto plan = Plan(request, kEverywhere);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const uint64_t rows = request.a().rows(), cols = request.a().cols();
  EXPECT_EQ(plan->a.shared.offset, 40);
  EXPECT_EQ(plan->a.shared.bytes, ((rows - 1) * 10 + cols) * 4);
}

TEST(SgemmValidationTest, AnAnswerOverTheLimitIsOutOfRange) {
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 256, 1);
  SetOperand(*request.mutable_b(), 1, 256);
  EXPECT_TRUE(Plan(request).ok());
  const auto plan = Plan(request, {.max_inline_bytes = 256 * 256 * 4});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("--max-inline-bytes"));
}

TEST(SgemmValidationTest, AnAnswerWhoseSizeOverflowsIsOutOfRange) {
  // An outer product of empty vectors: few bytes in, 2^80 values out.
  v1::SgemmRequest request;
  SetOperand(*request.mutable_a(), 0, 0);
  SetOperand(*request.mutable_b(), 0, 0);
  request.mutable_a()->set_rows(uint64_t{1} << 40);
  request.mutable_b()->set_cols(uint64_t{1} << 40);
  EXPECT_EQ(Plan(request).status().code(), absl::StatusCode::kOutOfRange);
  request.mutable_output()->mutable_resident();
  const absl::Status resident = Plan(request, {.resident = true}).status();
  EXPECT_EQ(resident.code(), absl::StatusCode::kOutOfRange) << resident;
  EXPECT_EQ(ErrorReason(resident), "LIMIT_EXCEEDED");
}

}  // namespace
}  // namespace gemmd
