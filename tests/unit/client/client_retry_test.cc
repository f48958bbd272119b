// What is tried again, when, and how often.

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "gemmd/client.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

TEST(ClientRetryTest, RetriesUnavailable) {
  FakeServer server(FailTimes(2, absl::UnavailableError("draining")));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->attempts, 3);
  EXPECT_TRUE(SameBits(answer->c, Expected(a, a)));
}

TEST(ClientRetryTest, GivesUpAfterTheTriesAllowedWithTheServersWords) {
  FakeServer server(FailTimes(
      100, UnavailableRetryError("the server drains", absl::ZeroDuration())));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status().message(), "the server drains");
  EXPECT_EQ(server.calls(), 4);
}

TEST(ClientRetryTest, WaitsAsLongAsTheServerAsks) {
  FakeServer server(FailTimes(
      1, QuotaError("queue-max-requests", "full", absl::Milliseconds(300))));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->attempts, 2);
  EXPECT_GE(answer->elapsed, absl::Milliseconds(300));
}

TEST(ClientRetryTest, RetriesNothingElse) {
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("no RetryInfo"), absl::InternalError("x"),
        absl::NotFoundError("x"), absl::InvalidArgumentError("x"),
        absl::AbortedError("x"), absl::FailedPreconditionError("x"),
        absl::OutOfRangeError("x"), absl::UnknownError("x"),
        absl::UnimplementedError("x")}) {
    FakeServer server(FailTimes(1, error));
    const auto client =
        NewClient({.address = server.address(), .retry = QuickRetries()});
    const Matrix a = RandomMatrix(2, 2);
    const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
    EXPECT_EQ(answer.status(), error);
    EXPECT_EQ(server.calls(), 1);
  }
}

TEST(ClientRetryTest, KeepsTheDetailsOfAnError) {
  FakeServer server(
      FailTimes(1, InvalidFieldError("a.leading_dimension", "too small")));
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status(),
            InvalidFieldError("a.leading_dimension", "too small"));
}

TEST(ClientRetryTest, DoesNotWaitForATryPastTheDeadline) {
  FakeServer server(
      FailTimes(100, QuotaError("queue", "full", absl::Seconds(30))));
  const auto client =
      NewClient({.address = server.address(), .timeout = absl::Seconds(10)});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status().message(), "full");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

}  // namespace
}  // namespace gemmd
