#include "server/observe/striped_histogram.h"

#include <prometheus/metric_family.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace gemmd {
namespace {

// Threads are dealt out in turn.
unsigned ThreadNumber() {
  static std::atomic<unsigned> next{0};
  thread_local const unsigned number =
      next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

}  // namespace

StripedHistogram::StripedHistogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)) {
  if (bounds_.size() > kMaxBounds) std::abort();
}

// Relaxed throughout: nothing is published but the figures themselves.
void StripedHistogram::Observe(double value) {
  const size_t bucket =
      std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  Stripe& stripe = stripes_[ThreadNumber() % kStripes];
  stripe.counts[bucket].fetch_add(1, std::memory_order_relaxed);
  stripe.sum.fetch_add(value, std::memory_order_relaxed);
}

prometheus::ClientMetric::Histogram StripedHistogram::Read() const {
  prometheus::ClientMetric::Histogram read;
  uint64_t cumulative = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    for (const Stripe& stripe : stripes_) {
      cumulative += stripe.counts[i].load(std::memory_order_relaxed);
    }
    const double bound = i < bounds_.size()
                             ? bounds_[i]
                             : std::numeric_limits<double>::infinity();
    read.bucket.push_back(
        {.cumulative_count = cumulative, .upper_bound = bound});
  }
  read.sample_count = cumulative;
  for (const Stripe& stripe : stripes_) {
    read.sample_sum += stripe.sum.load(std::memory_order_relaxed);
  }
  return read;
}

StripedHistogram& HistogramFamily::Add(
    std::vector<prometheus::ClientMetric::Label> labels,
    std::vector<double> bounds) {
  members_.push_back({std::move(labels),
                      std::make_unique<StripedHistogram>(std::move(bounds))});
  return *members_.back().histogram;
}

std::vector<prometheus::MetricFamily> HistogramFamily::Collect() const {
  prometheus::MetricFamily family{
      name_, help_, prometheus::MetricType::Histogram, {}};
  for (const Member& member : members_) {
    prometheus::ClientMetric metric;
    metric.label = member.labels;
    metric.histogram = member.histogram->Read();
    family.metric.push_back(std::move(metric));
  }
  return {std::move(family)};
}

}  // namespace gemmd
