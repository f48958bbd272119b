#include "proto/error_details.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"

namespace gemmd {
namespace {

// The detail of that type; fails the test where there is none.
template <typename Message>
Message DetailOf(const absl::Status& status) {
  Message message;
  const auto payload = status.GetPayload("type.googleapis.com/" +
                                         Message::descriptor()->full_name());
  EXPECT_TRUE(payload.has_value()) << Message::descriptor()->full_name();
  EXPECT_TRUE(
      message.ParseFromString(std::string(payload.value_or(absl::Cord()))));
  return message;
}

TEST(ErrorDetailsTest, InvalidFieldNamesTheField) {
  const absl::Status status = InvalidFieldError("b.cols", "b.cols is 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "b.cols is 3");
  const auto detail = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_EQ(detail.field_violations_size(), 1);
  EXPECT_EQ(detail.field_violations(0).field(), "b.cols");
  EXPECT_EQ(detail.field_violations(0).description(), "b.cols is 3");
  EXPECT_EQ(RetryDelay(status), std::nullopt);
}

TEST(ErrorDetailsTest, QuotaSaysWhatIsFullAndWhenToRetry) {
  const absl::Status status =
      QuotaError("queue-max-requests", "full", absl::Milliseconds(2500));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf<google::rpc::QuotaFailure>(status).violations(0).subject(),
            "queue-max-requests");
  EXPECT_EQ(QuotaSubject(status), "queue-max-requests");
  EXPECT_EQ(QuotaSubject(absl::ResourceExhaustedError("full")), "");
  const auto retry = DetailOf<google::rpc::RetryInfo>(status);
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500000000);
}

TEST(ErrorDetailsTest, ALimitIsToldWithItsFlag) {
  const absl::Status status =
      LimitError("--max-inline-bytes", 1024, "too large");
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  const auto detail = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(detail.reason(), "LIMIT_EXCEEDED");
  EXPECT_EQ(detail.metadata().at("flag"), "--max-inline-bytes");
  EXPECT_EQ(detail.metadata().at("limit"), "1024");
  EXPECT_EQ(RetryDelay(status), std::nullopt) << "asking again is no use";
}

TEST(ErrorDetailsTest, UnavailableSaysWhenToRetry) {
  const absl::Status status =
      UnavailableRetryError("draining", absl::Seconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(RetryDelay(status), absl::Seconds(1));
}

TEST(ErrorDetailsTest, ARetryDelayIsNeverNegative) {
  const absl::Status status = UnavailableRetryError("x", absl::Seconds(-5));
  EXPECT_EQ(DetailOf<google::rpc::RetryInfo>(status).retry_delay().seconds(),
            0);
  // Nor one that another server made.
  absl::Status foreign = absl::UnavailableError("x");
  google::rpc::RetryInfo negative;
  negative.mutable_retry_delay()->set_seconds(-5);
  foreign.SetPayload("type.googleapis.com/google.rpc.RetryInfo",
                     absl::Cord(negative.SerializeAsString()));
  EXPECT_EQ(RetryDelay(foreign), absl::ZeroDuration());
}

TEST(ErrorDetailsTest, NotFoundNamesTheResource) {
  const absl::Status status =
      ResourceNotFoundError("gemmd.v1.Matrix", "weights", "no such matrix");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  const auto detail = DetailOf<google::rpc::ResourceInfo>(status);
  EXPECT_EQ(detail.resource_type(), "gemmd.v1.Matrix");
  EXPECT_EQ(detail.resource_name(), "weights");
}

TEST(ErrorDetailsTest, FaultCarriesAMachineReadableCause) {
  const absl::Status status =
      FaultError("DEVICE_FAULT", "the device failed", {{"device", "0"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const auto detail = DetailOf<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(detail.reason(), "DEVICE_FAULT");
  EXPECT_EQ(detail.domain(), "gemmd");
  EXPECT_EQ(detail.metadata().at("device"), "0");
}

}  // namespace
}  // namespace gemmd
