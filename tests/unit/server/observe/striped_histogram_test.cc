#include "server/observe/striped_histogram.h"

#include <prometheus/metric_family.h>

#include <cmath>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using Read = prometheus::ClientMetric::Histogram;

TEST(StripedHistogramTest, AValueOnABoundBelongsBelowIt) {
  StripedHistogram histogram({1, 2});
  for (const double value : {0.5, 1.0, std::nextafter(1.0, 2), 2.0, 3.0}) {
    histogram.Observe(value);
  }
  const Read read = histogram.Read();
  ASSERT_EQ(read.bucket.size(), 3);
  EXPECT_EQ(read.bucket[0].upper_bound, 1);
  EXPECT_EQ(read.bucket[0].cumulative_count, 2);
  EXPECT_EQ(read.bucket[1].cumulative_count, 4);
  EXPECT_EQ(read.bucket[2].upper_bound,
            std::numeric_limits<double>::infinity());
  EXPECT_EQ(read.bucket[2].cumulative_count, 5);
  EXPECT_EQ(read.sample_count, 5);
  EXPECT_EQ(read.sample_sum, 0.5 + 1 + std::nextafter(1.0, 2) + 2 + 3);
}

// More threads than stripes, so that some share one; and a reader beside them.
TEST(StripedHistogramTest, LosesNothingThatManyThreadsRecord) {
  constexpr int kThreads = 11;
  constexpr int kEach = 20'000;
  StripedHistogram histogram({10, 100, 1000});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram] {
      for (int i = 0; i < kEach; ++i) histogram.Observe(i % 2 == 0 ? 1 : 500);
    });
  }
  for (uint64_t last = 0; last < kThreads * kEach / 2;) {
    const Read read = histogram.Read();
    EXPECT_GE(read.sample_count, last);
    for (size_t i = 1; i < read.bucket.size(); ++i) {
      EXPECT_GE(read.bucket[i].cumulative_count,
                read.bucket[i - 1].cumulative_count);
    }
    last = read.sample_count;
  }
  for (std::thread& thread : threads) thread.join();
  const Read read = histogram.Read();
  EXPECT_EQ(read.sample_count, kThreads * kEach);
  EXPECT_EQ(read.bucket[0].cumulative_count, kThreads * kEach / 2);
  EXPECT_EQ(read.bucket[1].cumulative_count, kThreads * kEach / 2);
  EXPECT_EQ(read.bucket[2].cumulative_count, kThreads * kEach);
  EXPECT_EQ(read.sample_sum, kThreads * kEach * 250.5);
}

TEST(HistogramFamilyTest, CollectsItsMembersUnderTheirLabels) {
  HistogramFamily family("sizes", "Some sizes.");
  family.Add({{"kernel", "a"}}, {1}).Observe(1);
  StripedHistogram& b = family.Add({{"kernel", "b"}}, {1, 2});
  const auto families = family.Collect();
  ASSERT_EQ(families.size(), 1);
  EXPECT_EQ(families[0].name, "sizes");
  EXPECT_EQ(families[0].help, "Some sizes.");
  ASSERT_EQ(families[0].metric.size(), 2);
  EXPECT_EQ(families[0].metric[0].label[0].value, "a");
  EXPECT_EQ(families[0].metric[0].histogram.sample_count, 1);
  EXPECT_EQ(families[0].metric[1].histogram.sample_count, 0);
  b.Observe(7);
  EXPECT_EQ(family.Collect()[0].metric[1].histogram.sample_sum, 7);
}

}  // namespace
}  // namespace gemmd
