#include "server/observe/memory_gauges.h"

#include <prometheus/metric_family.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

prometheus::MetricFamily Gauge(std::string name, std::string help,
                               size_t bytes) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = prometheus::MetricType::Gauge;
  family.metric.resize(1);
  family.metric[0].gauge.value = static_cast<double>(bytes);
  return family;
}

}  // namespace

MemoryGauges::MemoryGauges(std::string name, std::string help,
                           std::function<size_t()> used, size_t capacity)
    : name_(std::move(name)),
      help_(std::move(help)),
      used_(std::move(used)),
      capacity_(capacity) {}

std::vector<prometheus::MetricFamily> MemoryGauges::Collect() const {
  return {
      Gauge(absl::StrCat(name_, "_bytes"), absl::StrCat(help_, "."), used_()),
      Gauge(absl::StrCat(name_, "_capacity_bytes"),
            absl::StrCat(help_, ", at most."), capacity_)};
}

}  // namespace gemmd
