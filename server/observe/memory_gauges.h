// How much of a memory is taken, asked whenever /metrics is rendered: it
// changes with every request.

#pragma once

#include <prometheus/collectable.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gemmd {

class MemoryGauges final : public prometheus::Collectable {
 public:
  // `used` is called from any thread. Names and texts: Metrics::AddMemory.
  MemoryGauges(std::string name, std::string help, std::function<size_t()> used,
               size_t capacity);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string name_;
  const std::string help_;
  const std::function<size_t()> used_;
  const size_t capacity_;
};

}  // namespace gemmd
