#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "client/gemmctl/bench/load.h"
#include "client/gemmctl/bench/report.h"
#include "client/gemmctl/bench/workload.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"
#include "client/sgemm_check.h"

namespace gemmd::gemmctl {
namespace {

// Windows that must agree.
constexpr size_t kStableWindows = 3;

// Whether the last windows' rates, and their 95th percentiles, are within
// `percent` of their mean.
bool AreStable(const std::vector<Measurement>& windows, double percent) {
  if (windows.size() < kStableWindows) return false;
  const auto agree = [&](auto figure) {
    double sum = 0;
    double least = HUGE_VAL;
    double most = 0;
    for (size_t i = windows.size() - kStableWindows; i < windows.size(); ++i) {
      const double x = figure(windows[i]);
      sum += x;
      least = std::min(least, x);
      most = std::max(most, x);
    }
    const double mean = sum / kStableWindows;
    return std::max(most - mean, mean - least) <= percent / 100 * mean;
  };
  return agree([](const Measurement& x) { return x.Rate(); }) &&
         agree([](const Measurement& x) {
           return absl::ToDoubleSeconds(x.latencies.Percentile(95));
         });
}

// Measures one pace, warmed up.
BenchStep MeasureStep(const BenchOptions& bench, const Pace& pace, Load* load) {
  BenchStep step;
  load->Start(pace);
  const Measurement warmup = load->Cut(bench.warmup);
  if (!bench.keep_going && !warmup.first_error.ok()) {
    load->Stop();
    step.measured = warmup;
    return step;
  }
  if (bench.count > 0) {
    load->Stop();
    load->Start(pace, bench.count);
    step.measured = load->Stop();
    return step;
  }
  std::vector<Measurement> windows;
  bool ended = false;
  do {
    windows.push_back(load->Cut(bench.duration));
    ended = !bench.keep_going && !windows.back().first_error.ok();
  } while (bench.stability > 0 && !ended &&
           !AreStable(windows, bench.stability) &&
           static_cast<int>(windows.size()) < bench.max_windows);
  load->Stop();
  step.windows = static_cast<int>(windows.size());
  step.stable = bench.stability == 0 || AreStable(windows, bench.stability);
  const size_t merged =
      bench.stability == 0 ? 1 : std::min(windows.size(), kStableWindows);
  for (size_t i = windows.size() - merged; i < windows.size(); ++i) {
    step.measured.Merge(windows[i]);
  }
  return step;
}

std::vector<Pace> Paces(const BenchOptions& bench) {
  std::vector<Pace> paces;
  for (double rate : bench.rates) {
    paces.push_back({.in_flight = bench.max_in_flight,
                     .rate = rate,
                     .poisson = bench.poisson});
  }
  if (!paces.empty()) return paces;
  for (double concurrency : bench.concurrency) {
    paces.push_back({.in_flight = static_cast<int>(std::lround(concurrency))});
  }
  return paces;
}

absl::Status CheckShapes(const CommandLine& line) {
  for (const auto& [m, n, k, weight] : line.bench.shapes) {
    // Only sizes are looked at.
    const float number = 0;
    const auto size =
        client::CheckCall({.a = {&number, m, k}, .b = {&number, k, n}});
    if (!size.ok()) return size.status();
  }
  return absl::OkStatus();
}

}  // namespace

int RunBench(const CommandLine& line) {
  const BenchOptions& bench = line.bench;
  if (absl::Status status = CheckShapes(line); !status.ok()) {
    return Fail(status, kUsage);
  }
  ClientOptions options = line.client;
  options.verify_fraction = bench.verify;
  options.stream_small_products = bench.stream;
  options.busy_poll = bench.busy_poll;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options);
  if (!client.ok()) return Fail(client.status(), kUsage);
  auto workload = Workload::Create(client->get(), line);
  if (!workload.ok()) return FailRemote(workload.status());

  const bool progress = isatty(STDERR_FILENO) == 1;
  Load load(client->get(), workload->get(), bench.keep_going, progress);
  bool first = true;
  for (const Pace& pace : Paces(bench)) {
    BenchStep step = MeasureStep(bench, pace, &load);
    if (progress) std::fputs("\r\x1b[K", stderr);
    absl::Status status =
        bench.keep_going ? absl::OkStatus() : step.measured.first_error;
    if (status.ok() && bench.verify > 0) {
      for (const auto& slot : load.slots()) {
        if (status.ok()) {
          status = (*workload)->VerifyResidentOutputs(*slot,
                                                      &step.measured.verified);
        }
      }
    }
    if (!status.ok()) return FailRemote(status);
    step.pace = pace.rate.value_or(pace.in_flight);
    step.connections = (*client)->connections();
    std::fputs(FormatStep(line, step, first).c_str(), stdout);
    std::fflush(stdout);
    first = false;
  }
  return kOk;
}

}  // namespace gemmd::gemmctl
