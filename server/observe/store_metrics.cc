#include "server/observe/store_metrics.h"

#include <array>

namespace gemmd {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// In the order of the enum.
constexpr std::array<const char*, 5> kRemovalNames = {
    "deleted", "expired", "evicted", "replaced", "abandoned"};

MetricFamily Gauge(const char* name, const char* help, double value) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = MetricType::Gauge;
  family.metric.emplace_back();
  family.metric.back().gauge.value = value;
  return family;
}

}  // namespace

std::vector<MetricFamily> StoreMetrics::Collect() const {
  MetricFamily removed;
  removed.name = "gemmd_matrices_removed_total";
  removed.help = "Resident matrices that went, by why.";
  removed.type = MetricType::Counter;
  for (size_t i = 0; i < removed_.size(); ++i) {
    ClientMetric metric;
    metric.label.push_back({"reason", kRemovalNames[i]});
    metric.counter.value =
        static_cast<double>(removed_[i].load(std::memory_order_relaxed));
    removed.metric.push_back(metric);
  }
  return {
      Gauge("gemmd_matrices", "Names of complete resident matrices.",
            static_cast<double>(store_.matrices())),
      Gauge("gemmd_matrix_store_bytes",
            "Device memory that resident matrices take.",
            static_cast<double>(store_.used_bytes())),
      Gauge(
          "gemmd_matrix_form_bytes",
          "Of these, what kernels have made of matrices and keep beside them, "
          "such as BF16 slices.",
          static_cast<double>(store_.form_bytes())),
      Gauge("gemmd_matrix_store_capacity_bytes",
            "Device memory that resident matrices may take (the flag "
            "--matrix-store-bytes, on all devices).",
            static_cast<double>(store_.capacity_bytes())),
      std::move(removed),
  };
}

}  // namespace gemmd
