#include "client/gemmctl/bench/measurement.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace gemmd::gemmctl {
namespace {

// Nanoseconds in buckets: exact below 2^kBits, then 2^kBits a power of two.
constexpr int kBits = 8;
constexpr uint64_t kPerOctave = uint64_t{1} << kBits;
constexpr size_t kBuckets = kPerOctave * (65 - kBits);

size_t Bucket(uint64_t ns) {
  if (ns < kPerOctave) return ns;
  const int shift = std::bit_width(ns) - kBits - 1;
  return kPerOctave * shift + (ns >> shift);
}

// The middle of a bucket.
double BucketTime(size_t bucket) {
  if (bucket < 2 * kPerOctave) return static_cast<double>(bucket);
  const size_t shift = bucket / kPerOctave - 1;
  const uint64_t low = (bucket - kPerOctave * shift) << shift;
  return static_cast<double>(low) + std::exp2(shift - 1.0);
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kBuckets) {}

void LatencyHistogram::Add(absl::Duration latency) {
  const int64_t ns = std::max<int64_t>(absl::ToInt64Nanoseconds(latency), 0);
  ++buckets_[Bucket(ns)];
  ++count_;
  sum_ += latency;
  max_ = std::max(max_, latency);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

absl::Duration LatencyHistogram::Mean() const {
  return count_ == 0 ? absl::ZeroDuration() : sum_ / count_;
}

absl::Duration LatencyHistogram::Percentile(double p) const {
  const auto rank = static_cast<int64_t>(std::ceil(p / 100 * count_));
  int64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank && seen > 0) {
      return std::min(absl::Nanoseconds(BucketTime(i)), max_);
    }
  }
  return max_;
}

void Measurement::AddAnswer(const SgemmAnswer& answer, absl::Duration latency,
                            double product_flops, double wire_bytes) {
  const SgemmExecution& run = answer.execution;
  latencies.Add(latency);
  const std::array<absl::Duration, kStages.size()> times = {
      run.decode, run.queue, run.h2d, run.compute, run.d2h, run.encode};
  for (size_t i = 0; i < times.size(); ++i) stages[i] += times[i];
  batch_sizes += run.batch_size;
  attempts += answer.attempts;
  verified += answer.verified ? 1 : 0;
  flops += product_flops;
  bytes += wire_bytes;
  ++kernels[run.kernel];
}

void Measurement::AddError(const absl::Status& status) {
  if (first_error.ok()) first_error = status;
  ++errors[status.code()];
}

void Measurement::Merge(const Measurement& other) {
  latencies.Merge(other.latencies);
  for (size_t i = 0; i < stages.size(); ++i) stages[i] += other.stages[i];
  batch_sizes += other.batch_sizes;
  attempts += other.attempts;
  verified += other.verified;
  flops += other.flops;
  bytes += other.bytes;
  elapsed += other.elapsed;
  late += other.late;
  for (const auto& [kernel, count] : other.kernels) kernels[kernel] += count;
  for (const auto& [code, count] : other.errors) errors[code] += count;
  if (first_error.ok()) first_error = other.first_error;
}

int64_t Measurement::failed() const {
  int64_t sum = 0;
  for (const auto& [code, count] : errors) sum += count;
  return sum;
}

double Measurement::PerSecond(double sum) const {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? sum / seconds : 0;
}

absl::Duration Measurement::MeanStage(size_t stage) const {
  return products() == 0 ? absl::ZeroDuration() : stages[stage] / products();
}

double Measurement::MeanBatchSize() const {
  return products() == 0 ? 0
                         : static_cast<double>(batch_sizes) /
                               static_cast<double>(products());
}

std::string Measurement::MainKernel() const {
  const auto most = std::max_element(
      kernels.begin(), kernels.end(),
      [](const auto& x, const auto& y) { return x.second < y.second; });
  return most == kernels.end() ? "" : most->first;
}

}  // namespace gemmd::gemmctl
