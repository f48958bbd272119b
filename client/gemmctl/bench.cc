#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"
#include "client/gemmctl/format.h"
#include "client/gemmctl/json.h"
#include "client/sgemm_check.h"

namespace gemmd::gemmctl {
namespace {

// The server's stages, in their order.
constexpr std::array<const char*, 6> kStages = {"decode",  "queue", "h2d",
                                                "compute", "d2h",   "encode"};

std::array<absl::Duration, 6> StageTimes(const SgemmExecution& execution) {
  return {execution.decode,  execution.queue, execution.h2d,
          execution.compute, execution.d2h,   execution.encode};
}

// What was measured.
struct Measurement {
  std::vector<float> latencies;              // seconds, sorted at the end
  std::array<double, 6> stage_seconds = {};  // sums
  double batch_sizes = 0;                    // sum
  int64_t retries = 0;
  absl::Duration elapsed;
  std::string kernel;
  absl::Status error;  // the first, which ends the run

  double Percentile(double p) const {
    const size_t last = latencies.size() - 1;
    return latencies[std::lround(p / 100 * last)];
  }
  double Mean() const {
    double sum = 0;
    for (float latency : latencies) sum += latency;
    return sum / latencies.size();
  }
};

// Keeps `concurrency` calls in flight until `enough` says so. A callback begins
// the next call, so no thread waits for an answer.
class ClosedLoop {
 public:
  ClosedLoop(Client* client, const SgemmCall& call)
      : client_(client), call_(call) {}

  // Until `duration` has passed, or `count` calls have ended where that is not
  // 0; `measurement` gets what ended.
  void Run(int concurrency, absl::Duration duration, int64_t count,
           bool progress, Measurement* measurement);

 private:
  // All with mu_ held.
  bool MayBegin() const;
  void Begin(std::unique_lock<std::mutex>& lock);
  void Ended(absl::StatusOr<SgemmAnswer> answer);

  Client* const client_;
  const SgemmCall call_;

  std::mutex mu_;
  std::condition_variable changed_;
  Measurement* measurement_ = nullptr;  // the rest is guarded by mu_
  absl::Time end_;
  int64_t count_ = 0;
  int64_t begun_ = 0;
  int in_flight_ = 0;
};

bool ClosedLoop::MayBegin() const {
  if (!measurement_->error.ok()) return false;
  return count_ > 0 ? begun_ < count_ : absl::Now() < end_;
}

void ClosedLoop::Begin(std::unique_lock<std::mutex>& lock) {
  ++begun_;
  ++in_flight_;
  lock.unlock();
  client_->SgemmAsync(call_, [this](absl::StatusOr<SgemmAnswer> answer) {
    Ended(std::move(answer));
  });
  lock.lock();
}

void ClosedLoop::Ended(absl::StatusOr<SgemmAnswer> answer) {
  std::unique_lock<std::mutex> lock(mu_);
  --in_flight_;
  if (answer.ok()) {
    measurement_->latencies.push_back(
        static_cast<float>(absl::ToDoubleSeconds(answer->elapsed)));
    const auto stages = StageTimes(answer->execution);
    for (size_t i = 0; i < stages.size(); ++i) {
      measurement_->stage_seconds[i] += absl::ToDoubleSeconds(stages[i]);
    }
    measurement_->batch_sizes += answer->execution.batch_size;
    measurement_->retries += answer->attempts - 1;
    measurement_->kernel = answer->execution.kernel;
  } else if (measurement_->error.ok()) {
    measurement_->error = answer.status();
  }
  if (MayBegin()) Begin(lock);
  if (in_flight_ == 0) changed_.notify_all();
}

void ClosedLoop::Run(int concurrency, absl::Duration duration, int64_t count,
                     bool progress, Measurement* measurement) {
  std::unique_lock<std::mutex> lock(mu_);
  measurement_ = measurement;
  const absl::Time begin = absl::Now();
  end_ = begin + duration;
  count_ = count;
  begun_ = 0;
  for (int i = 0; i < concurrency && MayBegin(); ++i) Begin(lock);
  while (in_flight_ > 0) {
    changed_.wait_for(lock, std::chrono::milliseconds(500));
    if (!progress) continue;
    const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    std::fprintf(stderr, "\r%.1f s: %zu products, %.0f/s ", seconds,
                 measurement->latencies.size(),
                 measurement->latencies.size() / seconds);
  }
  if (progress) std::fprintf(stderr, "\r\x1b[K");
  measurement->elapsed = absl::Now() - begin;
  std::sort(measurement->latencies.begin(), measurement->latencies.end());
}

Matrix RandomMatrix(int64_t rows, int64_t cols) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Matrix x(rows, cols);
  std::generate_n(x.data(), rows * cols, [&] { return uniform(random); });
  return x;
}

// What the figures say, worked out once for both forms of the report.
struct Figures {
  explicit Figures(const CommandLine& line, const Measurement& measured) {
    const BenchOptions& bench = line.bench;
    const double seconds = absl::ToDoubleSeconds(measured.elapsed);
    requests_per_second = measured.latencies.size() / seconds;
    flops = 2.0 * bench.m * bench.n * bench.k * requests_per_second;
    bytes = 4.0 *
            (1.0 * bench.m * bench.k + 1.0 * bench.k * bench.n +
             1.0 * bench.m * bench.n) *
            requests_per_second;
  }
  double requests_per_second;
  double flops;
  double bytes;  // of numbers, both ways
};

void ReportJson(const CommandLine& line, const Measurement& measured) {
  const BenchOptions& bench = line.bench;
  const Figures figures(line, measured);
  JsonObject latency;
  latency.Add("mean", measured.Mean());
  for (double p : {50, 90, 95, 99}) {
    latency.Add(absl::StrFormat("p%.0f", p), measured.Percentile(p));
  }
  latency.Add("max", measured.Percentile(100));
  JsonObject stages;
  for (size_t i = 0; i < kStages.size(); ++i) {
    stages.Add(kStages[i],
               measured.stage_seconds[i] / measured.latencies.size());
  }
  const JsonObject report =
      JsonObject()
          .Add("m", bench.m)
          .Add("n", bench.n)
          .Add("k", bench.k)
          .Add("concurrency", bench.concurrency)
          .Add("connections", line.client.connections)
          .Add("kernel", measured.kernel)
          .Add("requests", static_cast<uint64_t>(measured.latencies.size()))
          .Add("retries", measured.retries)
          .Add("seconds", absl::ToDoubleSeconds(measured.elapsed))
          .Add("requests_per_second", figures.requests_per_second)
          .Add("tflops", figures.flops / 1e12)
          .Add("bytes_per_second", figures.bytes)
          .Add("mean_batch_size",
               measured.batch_sizes / measured.latencies.size())
          .AddJson("latency_seconds", latency.str())
          .AddJson("mean_stage_seconds", stages.str());
  std::printf("%s\n", report.str().c_str());
}

std::string FormatRate(double rate) {
  return rate < 100 ? absl::StrFormat("%.3g", rate)
                    : absl::StrFormat("%.0f", rate);
}

void ReportText(const CommandLine& line, const Measurement& measured) {
  const BenchOptions& bench = line.bench;
  const Figures figures(line, measured);
  const auto time = [](double seconds) {
    return FormatTime(absl::Seconds(seconds));
  };
  std::string latency = absl::StrCat("mean ", time(measured.Mean()));
  for (double p : {50, 90, 95, 99}) {
    absl::StrAppend(&latency, absl::StrFormat(", p%.0f ", p),
                    time(measured.Percentile(p)));
  }
  absl::StrAppend(&latency, ", max ", time(measured.Percentile(100)));
  std::string stages;
  double server = 0;
  for (size_t i = 0; i < kStages.size(); ++i) {
    const double mean = measured.stage_seconds[i] / measured.latencies.size();
    server += mean;
    absl::StrAppend(&stages, i == 0 ? "" : ", ", kStages[i], " ", time(mean));
  }
  absl::StrAppend(&stages, ", wire and client ",
                  time(measured.Mean() - server));
  std::printf(
      "%s",
      FormatTable(
          {{"product", absl::StrFormat("%d x %d x %d, kernel %s", bench.m,
                                       bench.n, bench.k, measured.kernel)},
           {"load",
            absl::StrFormat("%d in flight, %d connection%s, %d products in %s, "
                            "%d retries, batches of %.1f",
                            bench.concurrency, line.client.connections,
                            line.client.connections == 1 ? "" : "s",
                            measured.latencies.size(),
                            FormatTime(measured.elapsed), measured.retries,
                            measured.batch_sizes / measured.latencies.size())},
           {"rate",
            absl::StrCat(FormatRate(figures.requests_per_second),
                         " products/s, ", FormatFlops(figures.flops), ", ",
                         absl::StrFormat("%.3g GB/s", figures.bytes / 1e9))},
           {"latency", latency},
           {"stages", "mean " + stages}})
          .c_str());
}

}  // namespace

int RunBench(const CommandLine& line) {
  const BenchOptions& bench = line.bench;
  const Matrix a = bench.transpose_a ? RandomMatrix(bench.k, bench.m)
                                     : RandomMatrix(bench.m, bench.k);
  const Matrix b = bench.transpose_b ? RandomMatrix(bench.n, bench.k)
                                     : RandomMatrix(bench.k, bench.n);
  const SgemmCall call = {.a = a.view(),
                          .b = b.view(),
                          .transpose_a = bench.transpose_a,
                          .transpose_b = bench.transpose_b,
                          .precision = line.precision,
                          .kernel = line.kernel};
  if (const auto size = client::CheckCall(call); !size.ok()) {
    return Fail(size.status(), kUsage);
  }
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(line.client);
  if (!client.ok()) return Fail(client.status(), kUsage);

  ClosedLoop loop(client->get(), call);
  const bool progress = isatty(STDERR_FILENO) == 1;
  Measurement warmup;
  loop.Run(bench.concurrency, bench.warmup, 0, progress, &warmup);
  if (!warmup.error.ok()) return FailRemote(warmup.error);
  Measurement measured;
  loop.Run(bench.concurrency, bench.duration, bench.count, progress, &measured);
  if (!measured.error.ok()) return FailRemote(measured.error);
  if (line.json) {
    ReportJson(line, measured);
  } else {
    ReportText(line, measured);
  }
  return kOk;
}

}  // namespace gemmd::gemmctl
