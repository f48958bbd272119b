#include "server/rpc/gathering.h"

#include <gtest/gtest.h>

namespace gemmd {
namespace {

constexpr MonotonicDuration kNone{0};

// Gathers `n` at once and ends.
void Gather(Gathering* gathering, int n) {
  for (int i = 0; i < n; ++i) gathering->Add();
  gathering->End();
}

TEST(GatheringTest, ALoneRequestWaitsForAFewLooks) {
  Gathering gathering;
  EXPECT_TRUE(gathering.empty());
  gathering.Add();
  EXPECT_FALSE(gathering.empty());
  EXPECT_FALSE(gathering.IsOver(Gathering::kLooks - 1, kNone));
  EXPECT_TRUE(gathering.IsOver(Gathering::kLooks, kNone));
  gathering.End();
  EXPECT_TRUE(gathering.empty());
}

TEST(GatheringTest, WaitsForAsManyAsTheLastTime) {
  Gathering gathering;
  Gather(&gathering, 3);
  gathering.Add();
  gathering.Add();
  EXPECT_FALSE(
      gathering.IsOver(1000, Gathering::kQuiet - MonotonicDuration{1}));
  gathering.Add();
  EXPECT_TRUE(gathering.IsOver(Gathering::kLooks, kNone));
}

TEST(GatheringTest, WaitsForThoseThatWentForOneQuietTime) {
  Gathering gathering;
  Gather(&gathering, 3);
  gathering.Add();
  EXPECT_TRUE(gathering.IsOver(Gathering::kLooks, Gathering::kQuiet));
  gathering.End();
  gathering.Add();  // and never again
  EXPECT_TRUE(gathering.IsOver(Gathering::kLooks, kNone));
}

TEST(GatherersTest, TheLastToEndLetsThemAllGo) {
  int all_over = 0;
  Gatherers gatherers([&] { ++all_over; });
  gatherers.Begin();
  gatherers.Begin();
  gatherers.End();
  EXPECT_EQ(all_over, 0);
  gatherers.End();
  EXPECT_EQ(all_over, 1);
  gatherers.Begin();
  gatherers.End();
  EXPECT_EQ(all_over, 2);
}

}  // namespace
}  // namespace gemmd
