#include "server/schedule/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/error_details.h"

namespace gemmd {
namespace {

TEST(AdmissionTest, GivesBackWhatATicketHeld) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  {
    absl::StatusOr<Admission::Ticket> first = admission.Admit("a", 60);
    ASSERT_TRUE(first.ok());
    Admission::Ticket moved = *std::move(first);
    EXPECT_EQ(admission.requests(), 1);
    EXPECT_EQ(admission.bytes(), 60u);
    moved = Admission::Ticket();
    EXPECT_EQ(admission.bytes(), 0u);
    moved = *admission.Admit("a", 100);
    EXPECT_EQ(admission.bytes(), 100u);
  }
  EXPECT_EQ(admission.requests(), 0);
  EXPECT_EQ(admission.bytes(), 0u);
}

TEST(AdmissionTest, ShedsWithRetryInfoWhenTheBudgetIsTaken) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  absl::StatusOr<Admission::Ticket> a = admission.Admit("a", 90);
  ASSERT_TRUE(a.ok());
  absl::StatusOr<Admission::Ticket> bytes = admission.Admit("a", 11);
  EXPECT_EQ(bytes.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(bytes.status()).has_value());
  EXPECT_NE(bytes.status().message().find("--queue-max-bytes"),
            absl::string_view::npos);
  absl::StatusOr<Admission::Ticket> b = admission.Admit("b", 10);
  ASSERT_TRUE(b.ok());
  absl::StatusOr<Admission::Ticket> requests = admission.Admit("c", 0);
  EXPECT_EQ(requests.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(requests.status()).has_value());
  EXPECT_NE(requests.status().message().find("--queue-max-requests"),
            absl::string_view::npos);
  EXPECT_EQ(admission.requests(), 2) << "a refusal took a share";
}

TEST(AdmissionTest, RefusesForGoodWhatIsOverTheWholeBudget) {
  Admission admission({.max_requests = 2, .max_bytes = 100});
  const absl::Status status = admission.Admit("a", 101).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(RetryDelay(status).has_value());
  EXPECT_EQ(admission.Admit("a", SIZE_MAX).status().code(),
            absl::StatusCode::kOutOfRange);
}

// Takes what it gets, and keeps it.
std::vector<Admission::Ticket> TakeAll(Admission& admission,
                                       const std::string& client,
                                       size_t bytes) {
  std::vector<Admission::Ticket> held;
  while (true) {
    absl::StatusOr<Admission::Ticket> ticket = admission.Admit(client, bytes);
    if (!ticket.ok()) {
      EXPECT_EQ(ticket.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_TRUE(RetryDelay(ticket.status()).has_value());
      return held;
    }
    held.push_back(*std::move(ticket));
  }
}

// A client that never reads its answers, or asks without end.
TEST(AdmissionTest, AClientHoldsItsShareAndOthersStillHaveRoom) {
  Admission by_requests({.max_requests = 1000, .max_bytes = 1 << 20});
  Admission by_bytes({.max_requests = 1 << 20, .max_bytes = 1000});
  for (Admission* const admission : {&by_requests, &by_bytes}) {
    const size_t bytes = admission == &by_bytes ? 1 : 0;
    auto first = TakeAll(*admission, "first", bytes);
    EXPECT_EQ(first.size(), 800u);
    auto second = TakeAll(*admission, "second", bytes);
    EXPECT_EQ(second.size(), 160u);
    EXPECT_TRUE(admission->Admit("third", bytes).ok());
    first.resize(0);
    EXPECT_EQ(TakeAll(*admission, "second", bytes).size(), 640u)
        << "of what is free now";
  }
}

TEST(AdmissionTest, AClientThatHoldsNothingMayTakeWhateverIsFree) {
  Admission admission({.max_requests = 1, .max_bytes = 100});
  absl::StatusOr<Admission::Ticket> all = admission.Admit("a", 100);
  ASSERT_TRUE(all.ok());
  EXPECT_FALSE(admission.Admit("b", 0).ok());
}

TEST(AdmissionTest, TheLastRequestsOfAClientAreForgottenWithIt) {
  Admission admission({.max_requests = 10, .max_bytes = 100});
  for (int i = 0; i < 3; ++i) {
    auto held = TakeAll(admission, "a", 1);
    EXPECT_EQ(held.size(), 8u);
  }
}

TEST(AdmissionTest, NeverExceedsItsBudgetUnderContention) {
  constexpr int kMaxRequests = 3;
  Admission admission({.max_requests = kMaxRequests, .max_bytes = 1000});
  std::atomic<int> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, client = std::to_string(i)] {
      for (int round = 0; round < 5000; ++round) {
        absl::StatusOr<Admission::Ticket> ticket = admission.Admit(client, 100);
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
