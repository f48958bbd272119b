// How calls end before they are answered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gemmd/client.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ClientEndingTest, EndsAtTheDeadline) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(300, 300);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm(
      {.a = a.view(), .b = a.view(), .timeout = absl::Milliseconds(150)});
  const absl::Duration took = absl::Now() - begin;
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr(server.address()), HasSubstr("150ms")));
  EXPECT_GE(took, absl::Milliseconds(140));
}

TEST(ClientEndingTest, CancelEndsACallInProgress) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification ended;
  absl::Status status;
  SgemmHandle handle = client->SgemmAsync(
      {.a = a.view(), .b = a.view()}, [&](absl::StatusOr<SgemmAnswer> answer) {
        status = answer.status();
        ended.Notify();
      });
  gate.WaitFor(1);
  handle.Cancel();
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  gate.WaitFor(0);
  handle.Cancel();  // of a call that ended: nothing
}

TEST(ClientEndingTest, CancelEndsAWaitForTheNextTry) {
  FakeServer server(
      FailTimes(100, QuotaError("queue", "full", absl::Seconds(30))));
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification ended;
  absl::Status status;
  SgemmHandle handle = client->SgemmAsync(
      {.a = a.view(), .b = a.view()}, [&](absl::StatusOr<SgemmAnswer> answer) {
        status = answer.status();
        ended.Notify();
      });
  while (server.calls() == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Time begin = absl::Now();
  handle.Cancel();
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  EXPECT_EQ(server.calls(), 1);
}

TEST(ClientEndingTest, DestructionCancelsAndEveryCallbackIsCalledOnce) {
  Gate gate;
  FakeServer server(gate.Handler());
  EXPECT_EQ(CancelledByDestruction(NewClient({.address = server.address()}), 8),
            8);
  gate.Open();
}

}  // namespace
}  // namespace gemmd
