#include "proto/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

TEST(StatusTest, EveryCodeComesBackFromTheWire) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << code;
    EXPECT_EQ(FromRpcStatus(ToRpcStatus(status)), status) << code;
    EXPECT_EQ(static_cast<int>(ToGrpcStatus(status).error_code()), code);
  }
}

TEST(StatusTest, DetailsSurviveTheWire) {
  const absl::Status status =
      QuotaError("queue-max-bytes", "full", absl::Milliseconds(1500));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back, status);  // payloads are part of the comparison
  EXPECT_EQ(RetryDelay(back), absl::Milliseconds(1500));
  EXPECT_EQ(FromRpcStatus(ToRpcStatus(status)), status);
}

TEST(StatusTest, DetailsAreAGoogleRpcStatus) {
  const grpc::Status wire =
      ToGrpcStatus(InvalidFieldError("a.rows", "a.rows is 0; 4 wanted"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(wire.error_details()));
  EXPECT_EQ(details.code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(details.message(), wire.error_message());
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::BadRequest bad_request;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad_request));
  EXPECT_EQ(bad_request.field_violations(0).field(), "a.rows");
}

TEST(StatusTest, NoDetailsTravelWhereThereAreNone) {
  EXPECT_EQ(ToGrpcStatus(absl::CancelledError("x")).error_details(), "");
}

TEST(StatusTest, UnknownCodesBecomeUnknown) {
  // 27 is no code, and a value that the enum can hold.
  EXPECT_EQ(
      FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(27), "odd"))
          .code(),
      absl::StatusCode::kUnknown);
  google::rpc::Status negative;
  negative.set_code(-1);
  EXPECT_EQ(FromRpcStatus(negative).code(), absl::StatusCode::kUnknown);
}

TEST(StatusTest, ForeignDetailsAreLeftOut) {
  const absl::Status status = FromGrpcStatus(
      grpc::Status(grpc::StatusCode::INTERNAL, "odd", "\xff\xff not protobuf"));
  EXPECT_EQ(status, absl::InternalError("odd"));
  // Not by half either.
  grpc::Status wire = ToGrpcStatus(InvalidFieldError("a", "odd"));
  wire = grpc::Status(wire.error_code(), wire.error_message(),
                      wire.error_details() + "\xff");
  EXPECT_EQ(FromGrpcStatus(wire), absl::InvalidArgumentError("odd"));
}

TEST(StatusTest, LongMessagesAreCutBetweenCharacters) {
  // 1023 bytes, then a character of three bytes across the limit.
  const std::string text = std::string(1023, 'x') + "\u20ac and more";
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(text)).error_message(),
            std::string(1023, 'x'));
  const std::string exact(1024, 'y');
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(exact)).error_message(), exact);
}

TEST(StatusTest, TwoDetailsOfOneTypeAreMerged) {
  google::rpc::Status status;
  status.set_code(grpc::INVALID_ARGUMENT);
  for (const char* field : {"a", "b"}) {
    google::rpc::BadRequest detail;
    detail.add_field_violations()->set_field(field);
    status.add_details()->PackFrom(detail);
  }
  const auto payload = FromRpcStatus(status).GetPayload(
      "type.googleapis.com/google.rpc.BadRequest");
  ASSERT_TRUE(payload.has_value());
  google::rpc::BadRequest merged;
  ASSERT_TRUE(merged.ParseFromString(std::string(*payload)));
  ASSERT_EQ(merged.field_violations_size(), 2);
  EXPECT_EQ(merged.field_violations(1).field(), "b");
}

}  // namespace
}  // namespace gemmd
