#include "tests/bench/kernel_bench/stopwatch.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace gemmd {
namespace {

constexpr int kMinRuns = 5;
constexpr int kMaxRuns = 400;
constexpr int kMinGraphLaunches = 32;

// Runs work(0), work(1), ... and times each.
std::vector<double> TimeEach(const LaunchNumber& work, int runs,
                             cudaStream_t stream) {
  std::vector<CudaEvent> events(runs + 1);
  std::vector<double> us;
  events[0].Record(stream);
  for (int i = 0; i < runs; ++i) {
    work(i);
    events[i + 1].Record(stream);
  }
  for (int i = 0; i < runs; ++i) {
    us.push_back(events[i + 1].MicrosecondsSince(events[i]));
  }
  return us;
}

// Warms up, then times work, which takes about `us`, for about `seconds`.
std::vector<double> TimeFor(const LaunchNumber& work, double us, double seconds,
                            cudaStream_t stream) {
  const int runs = static_cast<int>(
      std::clamp(seconds * 1e6 / us, double{kMinRuns}, double{kMaxRuns}));
  TimeEach(work, runs / kMinRuns, stream);
  return TimeEach(work, runs, stream);
}

Timing Summarize(std::vector<double> us, double launches) {
  std::ranges::sort(us);
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(us.size()));
    return us[std::max<size_t>(static_cast<size_t>(rank), 1) - 1] / launches;
  };
  return {us.front() / launches, at(0.5), at(0.95)};
}

cudaGraphExec_t Capture(const LaunchNumber& launch, int launches,
                        cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  for (int i = 0; i < launches; ++i) launch(i);
  Check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  Check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  Check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return replay;
}

}  // namespace

double EstimateMicroseconds(const LaunchNumber& launch, cudaStream_t stream) {
  return TimeEach(launch, 2, stream)[1];
}

Timing TimeLaunches(TimingMethod method, const LaunchNumber& launch, int sets,
                    double us, double seconds, cudaStream_t stream) {
  if (method == TimingMethod::kEvents) {
    return Summarize(TimeFor(launch, us, seconds, stream), 1);
  }
  const int launches = std::max(sets, kMinGraphLaunches);
  const cudaGraphExec_t replay = Capture(launch, launches, stream);
  const auto replay_once = [&](int) {
    Check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
  };
  const double replay_us = EstimateMicroseconds(replay_once, stream);
  const Timing timing =
      Summarize(TimeFor(replay_once, replay_us, seconds, stream), launches);
  Check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  return timing;
}

}  // namespace gemmd
