#include "server/store/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

using Seen = RequestLog::Seen;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RequestLogTest : public ::testing::Test {
 protected:
  // Writes "id:new" or "id:done" to turns_ when it is its turn.
  uint64_t Begin(const std::string& id, const std::string& matrix = "c",
                 const std::string& client = "alice") {
    return log_->Begin(client, id, matrix, [this, id](Seen seen) {
      turns_.push_back(absl::StrCat(id, seen == Seen::kNew ? ":new" : ":done"));
    });
  }
  void End(const std::string& id, bool applied, const std::string& matrix = "c",
           const std::string& client = "alice") {
    log_->End(client, id, matrix, applied);
  }
  std::vector<std::string> Turns() { return std::exchange(turns_, {}); }

  const std::unique_ptr<RequestLog> log_ = RequestLog::Create();
  std::vector<std::string> turns_;
};

TEST_F(RequestLogTest, AnAppliedRequestIsNotAppliedAgain) {
  Begin("r");
  EXPECT_THAT(Turns(), ElementsAre("r:new"));
  End("r", /*applied=*/true);
  Begin("r");
  Begin("r");
  EXPECT_THAT(Turns(), ElementsAre("r:done", "r:done"));
  Begin("s");
  EXPECT_THAT(Turns(), ElementsAre("s:new"));
}

TEST_F(RequestLogTest, OneThatFailedMayBeTriedAgain) {
  Begin("r");
  End("r", /*applied=*/false);
  Begin("r");
  EXPECT_THAT(Turns(), ElementsAre("r:new", "r:new"));
}

TEST_F(RequestLogTest, RequestsToOneMatrixTakeTurns) {
  Begin("a");
  Begin("b");
  Begin("a");  // sent again while the first still runs
  Begin("other", "d");
  Begin("bobs", "c", "bob");
  EXPECT_THAT(Turns(), ElementsAre("a:new", "other:new", "bobs:new"));
  End("a", true);
  EXPECT_THAT(Turns(), ElementsAre("b:new"));
  End("b", true);
  EXPECT_THAT(Turns(), ElementsAre("a:done"));
}

TEST_F(RequestLogTest, TheWaitingRepetitionOfAFailureIsTried) {
  Begin("a");
  Begin("a");
  End("a", false);
  EXPECT_THAT(Turns(), ElementsAre("a:new", "a:new"));
}

TEST_F(RequestLogTest, OneThatWaitsMayWithdraw) {
  const uint64_t first = Begin("a");
  const uint64_t second = Begin("b");
  const uint64_t again = Begin("b");
  EXPECT_THAT(Turns(), ElementsAre("a:new"));
  EXPECT_FALSE(log_->Withdraw("alice", "c", first)) << "it has its turn";
  EXPECT_FALSE(log_->Withdraw("alice", "d", second)) << "another matrix";
  EXPECT_FALSE(log_->Withdraw("bob", "c", second)) << "another client";
  EXPECT_TRUE(log_->Withdraw("alice", "c", second));
  EXPECT_FALSE(log_->Withdraw("alice", "c", second));
  End("a", true);
  EXPECT_THAT(Turns(), ElementsAre("b:new"));
  EXPECT_FALSE(log_->Withdraw("alice", "c", again));
  const uint64_t last = Begin("c");
  EXPECT_TRUE(log_->Withdraw("alice", "c", last));
  End("b", true);
  EXPECT_THAT(Turns(), IsEmpty());
}

TEST_F(RequestLogTest, RequestsWithoutAnIdTakeTurnsAndAreForgotten) {
  Begin("");
  Begin("");
  EXPECT_THAT(Turns(), ElementsAre(":new"));
  End("", true);
  EXPECT_THAT(Turns(), ElementsAre(":new"));
}

TEST_F(RequestLogTest, AnIdCountsForItsClientAndMatrix) {
  Begin("r");
  End("r", true);
  Begin("r", "d");
  Begin("r", "c", "bob");
  EXPECT_THAT(Turns(), ElementsAre("r:new", "r:new", "r:new"));
}

TEST_F(RequestLogTest, ForgetsTheOldestOfAClientFirst) {
  for (int i = 0; i < 2000; ++i) {
    Begin(absl::StrCat(i));
    End(absl::StrCat(i), true);
  }
  Turns();
  Begin("1999");
  Begin("1500");
  EXPECT_THAT(Turns(), ElementsAre("1999:done", "1500:done"));
  Begin("0");
  EXPECT_THAT(Turns(), ElementsAre("0:new"));
}

// Turns that end where they begin must not nest: the stack would not hold them.
TEST_F(RequestLogTest, ManyTurnsThatEndAtOnceDoNotNest) {
  int turns = 0;
  log_->Begin("alice", "", "c", [](Seen) {});
  for (int i = 0; i < 200'000; ++i) {
    log_->Begin("alice", "", "c", [&](Seen) {
      ++turns;
      log_->End("alice", "", "c", true);
    });
  }
  EXPECT_EQ(turns, 0);
  log_->End("alice", "", "c", true);
  EXPECT_EQ(turns, 200'000);
}

// Every request is sent twice, from many threads; each is applied once, and two
// of a matrix never at the same time.
TEST_F(RequestLogTest, EachIsAppliedOnceUnderStress) {
  constexpr int kThreads = 4;
  constexpr int kRequests = 300;
  std::atomic<int> inside[2] = {0, 0};
  std::atomic<int> applied{0};
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        const int matrix = i % 2;
        const std::string name = absl::StrCat("m", matrix);
        const std::string id = absl::StrCat(t / 2, "-", i);  // of two threads
        log_->Begin("alice", id, name, [&, name, id, matrix](Seen seen) {
          if (seen == Seen::kNew) {
            EXPECT_EQ(inside[matrix].fetch_add(1), 0);
            ++applied;
            inside[matrix].fetch_sub(1);
            log_->End("alice", id, name, true);
          }
          ++answers;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers, kThreads * kRequests);
  EXPECT_EQ(applied, kThreads / 2 * kRequests);
}

}  // namespace
}  // namespace gemmd
