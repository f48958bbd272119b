// The standard process_* series, read from /proc at each scrape.

#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace gemmd {

// CPU seconds, memory, file descriptors and start time of this process. A value
// that /proc does not give is left out.
//
// Thread-safe.
class ProcessMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace gemmd
