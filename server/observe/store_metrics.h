// What /metrics says of the resident matrices.

#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "server/store/matrix_store.h"

namespace gemmd {

// Looks at the store at each scrape, since many threads change its size, and
// counts what leaves it as it is told.
//
// Thread-safe.
class StoreMetrics : public prometheus::Collectable {
 public:
  using Removal = MatrixStoreObserver::Removal;

  // `store` outlives every scrape.
  explicit StoreMetrics(const MatrixStore& store) : store_(store) {}

  void OnRemoved(Removal why) {
    removed_[static_cast<int>(why)].fetch_add(1, std::memory_order_relaxed);
  }

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  static constexpr int kRemovals = 5;

  const MatrixStore& store_;
  std::array<std::atomic<int64_t>, kRemovals> removed_{};
};

}  // namespace gemmd
