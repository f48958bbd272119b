#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "client/gemmctl/bench/bench_options.h"
#include "client/gemmctl/bench/measurement.h"

namespace gemmd::gemmctl {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

TEST(LatencyHistogramTest, PercentilesAreThoseOfTheSamplesTo1In256) {
  const unsigned seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  // Nanoseconds to hours.
  std::uniform_real_distribution<double> exponent(0, 43);
  for (size_t count : {1, 2, 3, 10, 5000}) {
    LatencyHistogram all, first, second;
    std::vector<double> samples;
    for (size_t i = 0; i < count; ++i) {
      samples.push_back(std::floor(std::exp2(exponent(random))));
      const absl::Duration latency = absl::Nanoseconds(samples.back());
      all.Add(latency);
      (i % 2 == 0 ? first : second).Add(latency);
    }
    first.Merge(second);
    std::sort(samples.begin(), samples.end());
    for (double p : {0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
      const auto rank = std::max<double>(std::ceil(p / 100 * count), 1);
      const double exact = samples[static_cast<size_t>(rank) - 1];
      EXPECT_NEAR(absl::ToDoubleNanoseconds(all.Percentile(p)), exact,
                  exact / 256)
          << p << " of " << count;
      EXPECT_EQ(all.Percentile(p), first.Percentile(p));
    }
    EXPECT_EQ(absl::ToDoubleNanoseconds(all.max()), samples.back());
    EXPECT_EQ(first.count(), static_cast<int64_t>(count));
  }
}

TEST(LatencyHistogramTest, OfNothingSaysNothing) {
  const LatencyHistogram none;
  EXPECT_EQ(none.Percentile(99), absl::ZeroDuration());
  EXPECT_EQ(none.Mean(), absl::ZeroDuration());
}

TEST(MeasurementTest, RatesAndMeansCountWhatEndedWell) {
  Measurement measured;
  SgemmAnswer answer;
  answer.execution.compute = absl::Milliseconds(3);
  answer.execution.batch_size = 4;
  answer.execution.kernel = "openblas";
  answer.attempts = 2;
  measured.AddAnswer(answer, absl::Milliseconds(10), 1e9, 5e6);
  answer.execution.compute = absl::Milliseconds(5);
  measured.AddAnswer(answer, absl::Milliseconds(20), 3e9, 5e6);
  measured.AddError(absl::ResourceExhaustedError("full"));
  measured.elapsed = absl::Seconds(2);
  EXPECT_EQ(measured.Rate(), 1);
  EXPECT_EQ(measured.PerSecond(measured.flops), 2e9);
  EXPECT_EQ(measured.MeanStage(3), absl::Milliseconds(4));
  EXPECT_EQ(measured.MeanBatchSize(), 4);
  EXPECT_EQ(measured.attempts, 4);
  EXPECT_EQ(measured.failed(), 1);
  EXPECT_EQ(measured.MainKernel(), "openblas");
}

TEST(BenchOptionsTest, ReadsRanges) {
  EXPECT_THAT(*ReadSteps("8"), ElementsAre(8));
  EXPECT_THAT(*ReadSteps("1:64:x2"), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(*ReadSteps("1:60:x2"), ElementsAre(1, 2, 4, 8, 16, 32));
  EXPECT_THAT(*ReadSteps("10:50:+20"), ElementsAre(10, 30, 50));
  EXPECT_THAT(*ReadSteps("0.1:0.4:+0.1"),
              ElementsAre(DoubleEq(0.1), DoubleEq(0.2),
                          ::testing::DoubleNear(0.3, 1e-12), DoubleEq(0.4)));
  for (const char* bad :
       {"", "x", "0", "-1", "1:", "1:2", "2:1:x2", "1:2:x1", "1:2:3", "1:2:+0",
        "1:2:x2:3", "1:1e300:+1", "inf", "nan"}) {
    EXPECT_FALSE(ReadSteps(bad).ok()) << bad;
  }
}

TEST(BenchOptionsTest, ReadsShapes) {
  EXPECT_EQ(ReadShape("64x32x16")->n, 32);
  EXPECT_EQ(ReadShape("64")->k, 64);
  for (const char* bad : {"", "x", "1x2", "1x2x3x4", "-1", "1x2x-3", "1.5"}) {
    EXPECT_FALSE(ReadShape(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace gemmd::gemmctl
