// A histogram that many threads record into without waiting for each other.

#pragma once

#include <prometheus/client_metric.h>
#include <prometheus/collectable.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gemmd {

// prometheus::Histogram without its lock: each thread adds to one of eight
// stripes, and a scrape sums them. An observation that a scrape overtakes may
// be in its buckets and not yet in its sum; no observation is lost.
//
// Thread-safe.
class StripedHistogram {
 public:
  static constexpr int kMaxBounds = 23;

  // `bounds` ascend, at most kMaxBounds of them; a value equal to a bound
  // belongs below it. +Inf is added.
  explicit StripedHistogram(std::vector<double> bounds);

  // Two atomic additions.
  void Observe(double value);

  // The sum of the stripes, with cumulative buckets.
  prometheus::ClientMetric::Histogram Read() const;

 private:
  static constexpr int kStripes = 8;
  // Of its own cache lines, so that stripes do not slow each other.
  struct alignas(64) Stripe {
    std::atomic<double> sum{0};
    std::array<std::atomic<uint64_t>, kMaxBounds + 1> counts{};
  };

  const std::vector<double> bounds_;
  std::array<Stripe, kStripes> stripes_;
};

// The histograms of one name, told apart by one label.
//
// Add is not thread-safe; what it returns, and Collect, are.
class HistogramFamily : public prometheus::Collectable {
 public:
  HistogramFamily(std::string name, std::string help)
      : name_(std::move(name)), help_(std::move(help)) {}

  // Valid as long as the family. `labels` may be empty.
  StripedHistogram& Add(std::vector<prometheus::ClientMetric::Label> labels,
                        std::vector<double> bounds);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Member {
    std::vector<prometheus::ClientMetric::Label> labels;
    std::unique_ptr<StripedHistogram> histogram;
  };
  const std::string name_;
  const std::string help_;
  std::vector<Member> members_;
};

}  // namespace gemmd
