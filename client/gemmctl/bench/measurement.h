// What a load was answered with.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gemmd/sgemm.h"

namespace gemmd::gemmctl {

// How often which time was seen, in constant memory: a percentile is right to
// 1 part in 256.
class LatencyHistogram {
 public:
  LatencyHistogram();

  void Add(absl::Duration latency);
  void Merge(const LatencyHistogram& other);

  int64_t count() const { return count_; }
  absl::Duration Mean() const;  // 0 of none, likewise below
  absl::Duration Percentile(double p) const;
  absl::Duration max() const { return max_; }

 private:
  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  absl::Duration sum_;
  absl::Duration max_;
};

// The server's stages, in their order.
inline constexpr std::array<const char*, 6> kStages = {
    "decode", "queue", "h2d", "compute", "d2h", "encode"};

// Thread-compatible.
struct Measurement {
  LatencyHistogram latencies;
  std::array<absl::Duration, kStages.size()> stages = {};  // sums
  int64_t batch_sizes = 0;                                 // sum
  int64_t attempts = 0;                                    // sum
  int64_t verified = 0;
  double flops = 0;  // of all products
  double bytes = 0;  // that crossed the wire, both ways, numbers alone
  absl::Duration elapsed;
  int64_t late = 0;  // begun later than intended, the limit being reached
  std::map<std::string, int64_t> kernels;      // by name
  std::map<absl::StatusCode, int64_t> errors;  // how many
  absl::Status first_error;

  void AddAnswer(const SgemmAnswer& answer, absl::Duration latency,
                 double product_flops, double wire_bytes);
  void AddError(const absl::Status& status);
  void Merge(const Measurement& other);

  int64_t products() const { return latencies.count(); }
  int64_t failed() const;
  double PerSecond(double sum) const;
  double Rate() const { return PerSecond(static_cast<double>(products())); }
  absl::Duration MeanStage(size_t stage) const;
  double MeanBatchSize() const;
  // The kernel that answered most.
  std::string MainKernel() const;
};

}  // namespace gemmd::gemmctl
