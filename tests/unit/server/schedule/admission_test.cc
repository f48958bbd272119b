#include "server/schedule/admission.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "proto/error_details.h"

namespace gemmd {
namespace {

TEST(AdmissionTest, GivesBackWhatATicketHeld) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  {
    absl::StatusOr<Admission::Ticket> first = admission.Admit(60);
    ASSERT_TRUE(first.ok());
    Admission::Ticket moved = *std::move(first);
    EXPECT_EQ(admission.requests(), 1);
    EXPECT_EQ(admission.bytes(), 60u);
    moved = Admission::Ticket();
    EXPECT_EQ(admission.bytes(), 0u);
    moved = *admission.Admit(100);
    EXPECT_EQ(admission.bytes(), 100u);
  }
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0u);
}

TEST(AdmissionTest, ShedsWithRetryInfoWhenTheBudgetIsTaken) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  absl::StatusOr<Admission::Ticket> a = admission.Admit(90);
  ASSERT_TRUE(a.ok());
  absl::StatusOr<Admission::Ticket> bytes = admission.Admit(11);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(bytes.status()).has_value());
  EXPECT_NE(bytes.status().message().find("--queue-max-bytes"),
            absl::string_view::npos);
  absl::StatusOr<Admission::Ticket> b = admission.Admit(10);
  ASSERT_TRUE(b.ok());
  absl::StatusOr<Admission::Ticket> requests = admission.Admit(0);
  EXPECT_EQ(requests.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(requests.status()).has_value());
  EXPECT_NE(requests.status().message().find("--queue-max-requests"),
            absl::string_view::npos);
  EXPECT_EQ(admission.requests(), 2) << "a refusal took a share";
}

TEST(AdmissionTest, RefusesForGoodWhatIsOverTheWholeBudget) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  const absl::Status status = admission.Admit(101).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(RetryDelay(status).has_value());
  EXPECT_EQ(admission.Admit(SIZE_MAX).status().code(),
            absl::StatusCode::kOutOfRange);
}

TEST(AdmissionTest, NeverExceedsItsBudgetUnderContention) {
  constexpr int kMaxRequests = 3;
  Admission admission({.max_requests = kMaxRequests, .max_bytes = 1000});
  std::atomic<int> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        absl::StatusOr<Admission::Ticket> ticket = admission.Admit(100);
        if (!ticket.ok()) continue;
        if (held.fetch_add(1) >= kMaxRequests) exceeded = true;
        held.fetch_sub(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0u);
}

}  // namespace
}  // namespace gemmd
