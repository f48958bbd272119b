// What recording costs: one request's calls to Metrics, from one thread and
// from several at once, and a scrape.

#include <benchmark/benchmark.h>

#include "server/observe/metrics.h"

namespace gemmd {
namespace {

Metrics& SharedMetrics() {
  static const auto* registry = new KernelRegistry({});
  static auto* metrics = [] {
    auto* made = new Metrics(true, *registry);
    made->SetDevice({.index = 0, .name = "device"}, true);
    return made;
  }();
  return *metrics;
}

// All that one Sgemm request records, its share of OnBatch aside.
void BM_OneRequest(benchmark::State& state) {
  Metrics& metrics = SharedMetrics();
  while (state.KeepRunning()) {
    metrics.CallStarted(Method::kSgemm);
    metrics.Problem(1e9);
    metrics.SetInflight(3);
    metrics.OnQueueDepth(1, 1 << 20);
    metrics.OnStreams(0, 1);
    metrics.OnStreams(0, -1);
    for (int stage = 0; stage < kStageCount; ++stage) {
      metrics.StageDone(static_cast<Stage>(stage), 1e-4);
    }
    metrics.MessageSizes(Method::kSgemm, 1 << 20, 1 << 18);
    metrics.CallCompleted(Method::kSgemm, grpc::OK, 1e-3);
    metrics.SetInflight(2);
  }
}
BENCHMARK(BM_OneRequest)->Threads(1)->Threads(2)->Threads(4)->UseRealTime();

void BM_Scrape(benchmark::State& state) {
  while (state.KeepRunning())
    benchmark::DoNotOptimize(SharedMetrics().Render());
}
BENCHMARK(BM_Scrape);

}  // namespace
}  // namespace gemmd
