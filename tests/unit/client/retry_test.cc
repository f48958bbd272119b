#include "client/retry.h"

#include <gtest/gtest.h>

#include "proto/error_details.h"

namespace gemmd::client {
namespace {

constexpr absl::Duration kForever = absl::InfiniteDuration();

RetryPolicy Policy() {
  return {.max_attempts = 5,
          .initial_backoff = absl::Milliseconds(100),
          .max_backoff = absl::Milliseconds(300)};
}

TEST(RetryTest, BacksOffExponentiallyUpToTheMaximum) {
  const absl::Status error = absl::UnavailableError("x");
  const int kMilliseconds[] = {100, 200, 300, 300};
  for (int attempts = 1; attempts <= 4; ++attempts) {
    const absl::Duration full = absl::Milliseconds(kMilliseconds[attempts - 1]);
    EXPECT_EQ(NextRetryDelay(Policy(), error, attempts, kForever, 0.0),
              full / 2);
    EXPECT_EQ(NextRetryDelay(Policy(), error, attempts, kForever, 0.5),
              full * 0.75);
  }
}

TEST(RetryTest, EndsAfterTheTriesAllowed) {
  const absl::Status error = absl::UnavailableError("x");
  EXPECT_TRUE(NextRetryDelay(Policy(), error, 4, kForever, 0.0).has_value());
  EXPECT_FALSE(NextRetryDelay(Policy(), error, 5, kForever, 0.0).has_value());
}

TEST(RetryTest, WaitsAtLeastAsLongAsTheServerAsks) {
  for (const absl::Status& error :
       {QuotaError("queue", "full", absl::Seconds(7)),
        UnavailableRetryError("draining", absl::Seconds(7))}) {
    EXPECT_EQ(NextRetryDelay(Policy(), error, 1, kForever, 0.0),
              absl::Seconds(7));
  }
  const absl::Status soon = QuotaError("queue", "full", absl::Milliseconds(1));
  EXPECT_EQ(NextRetryDelay(Policy(), soon, 1, kForever, 0.0),
            absl::Milliseconds(50));
}

TEST(RetryTest, BeginsNoWaitThatWouldPassTheDeadline) {
  const absl::Status error = QuotaError("queue", "full", absl::Seconds(7));
  EXPECT_TRUE(NextRetryDelay(Policy(), error, 1, absl::Seconds(8), 0.0));
  EXPECT_FALSE(NextRetryDelay(Policy(), error, 1, absl::Seconds(7), 0.0));
  EXPECT_FALSE(NextRetryDelay(Policy(), error, 1, absl::Seconds(-1), 0.0));
}

TEST(RetryTest, RetriesNothingButUnavailableAndAQuotaWithADelay) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status error(static_cast<absl::StatusCode>(code), "x");
    EXPECT_EQ(NextRetryDelay(Policy(), error, 1, kForever, 0.0).has_value(),
              code == static_cast<int>(absl::StatusCode::kUnavailable))
        << error;
  }
  EXPECT_TRUE(NextRetryDelay(
      Policy(), QuotaError("x", "x", absl::ZeroDuration()), 1, kForever, 0.0));
}

}  // namespace
}  // namespace gemmd::client
