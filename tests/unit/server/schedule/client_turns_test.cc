#include "server/schedule/client_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

using ::testing::ElementsAre;

constexpr std::array<int, 2> kLines = {0, 1};
const MonotonicTime kNow{std::chrono::seconds(1000)};

struct Waiter : ClientTurns::Waiter {
  std::string client;
  uint64_t sequence;
  int line;
  double cost;
  ClientTurns::Client* handle;
};

class ClientTurnsTest : public ::testing::Test {
 protected:
  Waiter& Add(const std::string& client, double cost = 1, int line = 0,
              MonotonicTime due = kAlways) {
    Waiter& waiter = waiters_.emplace_back();
    waiter.client = client;
    waiter.sequence = next_++;
    waiter.line = line;
    waiter.cost = cost;
    waiter.handle = turns_.Add(client, line, waiter.sequence, due, &waiter);
    return waiter;
  }

  Waiter* First(MonotonicTime now = kNow, std::array<int, 2> lines = kLines) {
    return static_cast<Waiter*>(turns_.First(lines, now));
  }

  void Serve(Waiter& waiter) {
    turns_.TakeTurn(waiter.handle);
    turns_.Remove(waiter.handle, waiter.line, waiter.sequence, waiter.cost);
  }

  // Serves so many, and says whose they were.
  std::vector<std::string> Served(int count) {
    std::vector<std::string> clients;
    for (int i = 0; i < count; ++i) {
      Waiter* const next = First();
      if (next == nullptr) break;
      clients.push_back(next->client);
      Serve(*next);
    }
    return clients;
  }

  ClientTurns turns_{3};
  std::deque<Waiter> waiters_;
  uint64_t next_ = 1;
};

TEST_F(ClientTurnsTest, OneClientIsServedInOrder) {
  for (int i = 0; i < 3; ++i) Add("a", 5 - i, i % 2);
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_NE(First(), nullptr);
    EXPECT_EQ(First()->sequence, i);
    Serve(*First());
  }
  EXPECT_EQ(First(), nullptr);
}

TEST_F(ClientTurnsTest, ANewcomerIsNextWhateverWaitsBeforeIt) {
  for (int i = 0; i < 10'000; ++i) Add("many");
  EXPECT_THAT(Served(100), ::testing::Each("many"));
  Add("one");
  EXPECT_THAT(Served(3), ElementsAre("one", "many", "many"));
}

TEST_F(ClientTurnsTest, TurnsAreWeightedByCost) {
  for (int i = 0; i < 20; ++i) Add("dear", 3);
  for (int i = 0; i < 20; ++i) Add("cheap", 1);
  int dear = 0;
  for (const std::string& client : Served(16)) dear += client == "dear";
  EXPECT_EQ(dear, 4);
}

TEST_F(ClientTurnsTest, NobodySavesUpOrPaysForTimeAway) {
  for (int i = 0; i < 100; ++i) Add("a");
  Served(50);
  for (int i = 0; i < 4; ++i) Add("b");
  EXPECT_THAT(Served(6), ElementsAre("b", "a", "b", "a", "b", "a"));
}

TEST_F(ClientTurnsTest, WhoCameAndWentDoesNotShedWhatItGot) {
  Add("a", 1);
  for (int i = 0; i < 9; ++i) Add("a", 1);
  Add("b", 5);
  EXPECT_THAT(Served(2), ElementsAre("a", "b"));  // b is gone, with 5
  EXPECT_EQ(turns_.absent(), 1u);
  Add("b", 5);
  EXPECT_THAT(Served(6), ElementsAre("a", "a", "a", "a", "a", "b"));
}

TEST_F(ClientTurnsTest, WhatIsNotServedCostsNothing) {
  std::vector<Waiter*> cancelled;
  for (int i = 0; i < 100; ++i) cancelled.push_back(&Add("b", 100));
  Waiter& wanted = Add("b", 1);
  for (int i = 0; i < 10; ++i) Add("a", 1);
  for (Waiter* const waiter : cancelled) {
    turns_.Remove(waiter->handle, waiter->line, waiter->sequence, 0);
  }
  EXPECT_EQ(First(), &wanted);
}

TEST_F(ClientTurnsTest, LinesOfAClientAreOneClient) {
  for (int i = 0; i < 4; ++i) Add("a", 1, i % 2);
  for (int i = 0; i < 2; ++i) Add("b", 1, 0);
  EXPECT_THAT(Served(6), ElementsAre("a", "b", "a", "b", "a", "a"));
}

TEST_F(ClientTurnsTest, OnlyTheLinesAskedForAreServed) {
  Add("a", 1, 2);
  EXPECT_EQ(First(kNow, {0, 1}), nullptr);
  EXPECT_TRUE(turns_.empty(0));
  EXPECT_FALSE(turns_.empty(2));
  EXPECT_NE(First(kNow, {0, 2}), nullptr);
}

TEST_F(ClientTurnsTest, NothingHasATurnBeforeItIsDue) {
  Add("a", 1, 0, kNow + std::chrono::seconds(2));
  Add("b", 1, 0, kNow + std::chrono::seconds(1));
  EXPECT_EQ(First(), nullptr);
  EXPECT_EQ(turns_.NextDue(0), kNow + std::chrono::seconds(1));
  EXPECT_EQ(turns_.NextDue(1), kNever);
  EXPECT_EQ(First(kNow + std::chrono::seconds(1))->client, "b");
  EXPECT_EQ(turns_.NextDue(0), kAlways);
  turns_.MakeDue(std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(First()->client, "a");
  Serve(*First());
  EXPECT_EQ(First()->client, "b");
  Serve(*First());
  Add("c", 1, 0, kNow + std::chrono::seconds(9));
  EXPECT_EQ(First()->client, "c");
}

TEST_F(ClientTurnsTest, ForgetsClientsThatAreGone) {
  Add("stays", 1e9);
  for (int i = 0; i < 5000; ++i) {
    Waiter& waiter = Add(absl::StrCat("passes", i), 1 + i);
    turns_.Remove(waiter.handle, 0, waiter.sequence, waiter.cost);
    ASSERT_LE(turns_.absent(), ClientTurns::kMaxAbsent);
  }
  EXPECT_GT(turns_.absent(), 0u);
  Serve(*First());  // the last
  EXPECT_EQ(turns_.absent(), 0u);
}

// Random clients that never stop asking: what two of them got, from when both
// wait, differs by no more than one request of each.
TEST_F(ClientTurnsTest, SharesAreEqualToOneRequest) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> cost(1, 100);
  std::vector<double> got(8, 0);
  const auto add = [&](size_t client) {
    Add(std::string(1, static_cast<char>('a' + client)), cost(random),
        static_cast<int>(random() % 2));
  };
  for (size_t client = 0; client < got.size(); ++client) {
    for (size_t i = 0; i <= random() % 5; ++i) add(client);
  }
  for (int i = 0; i < 20'000; ++i) {
    Waiter& next = *First();
    const size_t client = static_cast<size_t>(next.client[0] - 'a');
    add(client);
    Serve(next);
    got[client] += next.cost;
    const auto [least, most] = std::minmax_element(got.begin(), got.end());
    ASSERT_LE(*most - *least, 100);
  }
}

}  // namespace
}  // namespace gemmd
