#include "client/gemmctl/bench/report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/gemmctl/format.h"
#include "client/gemmctl/json.h"

namespace gemmd::gemmctl {
namespace {

constexpr double kPercentiles[] = {50, 90, 95, 99};

bool IsOpen(const CommandLine& line) { return !line.bench.rates.empty(); }

std::string ShapeName(const BenchShape& shape) {
  return absl::StrFormat("%d x %d x %d", shape.m, shape.n, shape.k);
}

// 99.9, 1234
std::string FormatRate(double rate) {
  return rate < 100 ? absl::StrFormat("%.3g", rate)
                    : absl::StrFormat("%.0f", rate);
}

std::string ErrorsText(const Measurement& measured) {
  std::vector<std::string> errors;
  for (const auto& [code, count] : measured.errors) {
    errors.push_back(absl::StrCat(count, " ", absl::StatusCodeToString(code)));
  }
  return absl::StrJoin(errors, ", ");
}

std::string Json(const CommandLine& line, const BenchStep& step) {
  const BenchOptions& bench = line.bench;
  const Measurement& measured = step.measured;
  const auto seconds = [](absl::Duration time) {
    return absl::ToDoubleSeconds(time);
  };
  JsonObject report;
  const BenchShape& shape = bench.shapes.front();
  if (bench.shapes.size() == 1) {
    report.Add("m", shape.m).Add("n", shape.n).Add("k", shape.k);
  } else {
    JsonArray shapes;
    for (const BenchShape& each : bench.shapes) {
      shapes.Add(JsonObject()
                     .Add("m", each.m)
                     .Add("n", each.n)
                     .Add("k", each.k)
                     .Add("weight", each.weight));
    }
    report.AddJson("shapes", shapes.str());
  }
  report.Add("operands", OperandModeName(bench.operands));
  if (IsOpen(line)) {
    report.Add("rate", step.pace)
        .Add("arrivals", bench.poisson ? "poisson" : "constant")
        .Add("late", measured.late);
  } else {
    report.Add("concurrency", static_cast<int64_t>(step.pace));
  }
  JsonObject latency;
  latency.Add("mean", seconds(measured.latencies.Mean()));
  for (double p : kPercentiles) {
    latency.Add(absl::StrFormat("p%.0f", p),
                seconds(measured.latencies.Percentile(p)));
  }
  latency.Add("max", seconds(measured.latencies.max()));
  JsonObject stages;
  for (size_t i = 0; i < kStages.size(); ++i) {
    stages.Add(kStages[i], seconds(measured.MeanStage(i)));
  }
  JsonObject errors;
  for (const auto& [code, count] : measured.errors) {
    errors.Add(absl::StatusCodeToString(code), count);
  }
  return report.Add("connections", step.connections)
      .Add("kernel", measured.MainKernel())
      .Add("requests", measured.products())
      .Add("retries", measured.attempts - measured.products())
      .Add("failed", measured.failed())
      .AddJson("errors", errors.str())
      .Add("verified", measured.verified)
      .Add("windows", step.windows)
      .Add("stable", step.stable)
      .Add("seconds", seconds(measured.elapsed))
      .Add("requests_per_second", measured.Rate())
      .Add("tflops", measured.PerSecond(measured.flops) / 1e12)
      .Add("bytes_per_second", measured.PerSecond(measured.bytes))
      .Add("mean_batch_size", measured.MeanBatchSize())
      .AddJson("latency_seconds", latency.str())
      .AddJson("mean_stage_seconds", stages.str())
      .str();
}

std::string Csv(const CommandLine& line, const BenchStep& step, bool first) {
  const Measurement& measured = step.measured;
  std::vector<std::string> names = {IsOpen(line) ? "rate" : "concurrency",
                                    "requests",
                                    "failed",
                                    "retries",
                                    "late",
                                    "seconds",
                                    "requests_per_second",
                                    "tflops",
                                    "bytes_per_second",
                                    "mean_batch_size",
                                    "mean_us"};
  std::vector<double> cells = {
      step.pace,
      static_cast<double>(measured.products()),
      static_cast<double>(measured.failed()),
      static_cast<double>(measured.attempts - measured.products()),
      static_cast<double>(measured.late),
      absl::ToDoubleSeconds(measured.elapsed),
      measured.Rate(),
      measured.PerSecond(measured.flops) / 1e12,
      measured.PerSecond(measured.bytes),
      measured.MeanBatchSize()};
  const auto add = [&](const std::string& name, absl::Duration time) {
    if (name != "mean_us") names.push_back(name);
    cells.push_back(absl::ToDoubleMicroseconds(time));
  };
  add("mean_us", measured.latencies.Mean());
  for (double p : kPercentiles) {
    add(absl::StrFormat("p%.0f_us", p), measured.latencies.Percentile(p));
  }
  add("max_us", measured.latencies.max());
  for (size_t i = 0; i < kStages.size(); ++i) {
    add(absl::StrCat(kStages[i], "_us"), measured.MeanStage(i));
  }
  std::string text = first ? absl::StrJoin(names, ",") + "\n" : "";
  absl::StrAppend(&text,
                  absl::StrJoin(cells, ",",
                                [](std::string* out, double cell) {
                                  absl::StrAppendFormat(out, "%.9g", cell);
                                }),
                  "\n");
  return text;
}

// One step of several, in columns.
std::string TextLine(const CommandLine& line, const BenchStep& step,
                     bool first) {
  constexpr char kFormat[] =
      "%11s %9s %14s %9s %10s %10s %10s %10s %10s %10s %7s\n";
  const Measurement& measured = step.measured;
  std::string text;
  if (first) {
    absl::StrAppendFormat(&text, kFormat, IsOpen(line) ? "RATE" : "CONCURRENCY",
                          "/s", "FLOP/s", "GB/s", "p50", "p95", "p99", "max",
                          "QUEUE", "COMPUTE", "FAILED");
  }
  const LatencyHistogram& latencies = measured.latencies;
  absl::StrAppendFormat(
      &text, kFormat, absl::StrFormat("%g", step.pace),
      FormatRate(measured.Rate()),
      FormatFlops(measured.PerSecond(measured.flops)),
      absl::StrFormat("%.3g", measured.PerSecond(measured.bytes) / 1e9),
      FormatTime(latencies.Percentile(50)),
      FormatTime(latencies.Percentile(95)),
      FormatTime(latencies.Percentile(99)), FormatTime(latencies.max()),
      FormatTime(measured.MeanStage(1)), FormatTime(measured.MeanStage(3)),
      absl::StrCat(measured.failed(), step.stable ? "" : " ~"));
  return text;
}

std::string LoadText(const CommandLine& line, const BenchStep& step) {
  const Measurement& measured = step.measured;
  std::string text =
      IsOpen(line)
          ? absl::StrFormat(
                "%g products/s asked for (%s), %d begun late", step.pace,
                line.bench.poisson ? "poisson" : "constant", measured.late)
          : absl::StrFormat("%g in flight", step.pace);
  absl::StrAppendFormat(&text,
                        ", %d connection%s, operands %s, %d products in %s, "
                        "%d retries, batches of %.1f",
                        step.connections, step.connections == 1 ? "" : "s",
                        OperandModeName(line.bench.operands),
                        measured.products(), FormatTime(measured.elapsed),
                        measured.attempts - measured.products(),
                        measured.MeanBatchSize());
  if (measured.verified > 0) {
    absl::StrAppend(&text, ", ", measured.verified, " verified");
  }
  if (step.windows > 1) {
    absl::StrAppend(&text, step.stable ? ", stable" : ", NOT stable", " after ",
                    step.windows, " windows");
  }
  return text;
}

// One step alone, at length.
std::string TextBlock(const CommandLine& line, const BenchStep& step) {
  const BenchOptions& bench = line.bench;
  const Measurement& measured = step.measured;
  std::string latency =
      absl::StrCat("mean ", FormatTime(measured.latencies.Mean()));
  for (double p : kPercentiles) {
    absl::StrAppend(&latency, absl::StrFormat(", p%.0f ", p),
                    FormatTime(measured.latencies.Percentile(p)));
  }
  absl::StrAppend(&latency, ", max ", FormatTime(measured.latencies.max()));
  std::string stages = "mean ";
  absl::Duration server;
  for (size_t i = 0; i < kStages.size(); ++i) {
    server += measured.MeanStage(i);
    absl::StrAppend(&stages, kStages[i], " ", FormatTime(measured.MeanStage(i)),
                    ", ");
  }
  absl::StrAppend(&stages, "wire and client ",
                  FormatTime(measured.latencies.Mean() - server));
  std::vector<std::vector<std::string>> rows = {
      {"product",
       absl::StrCat(bench.shapes.size() == 1
                        ? ShapeName(bench.shapes.front())
                        : absl::StrCat(bench.shapes.size(), " shapes"),
                    ", kernel ", measured.MainKernel())},
      {"load", LoadText(line, step)},
      {"rate",
       absl::StrCat(FormatRate(measured.Rate()), " products/s, ",
                    FormatFlops(measured.PerSecond(measured.flops)), ", ",
                    absl::StrFormat("%.3g GB/s",
                                    measured.PerSecond(measured.bytes) / 1e9))},
      {"latency", latency},
      {"stages", stages}};
  if (measured.failed() > 0) {
    rows.push_back({"failed", ErrorsText(measured)});
  }
  return FormatTable(rows);
}

}  // namespace

std::string FormatStep(const CommandLine& line, const BenchStep& step,
                       bool first) {
  const BenchOptions& bench = line.bench;
  switch (bench.format) {
    case BenchFormat::kJson:
      return Json(line, step) + "\n";
    case BenchFormat::kCsv:
      return Csv(line, step, first);
    case BenchFormat::kText:
      break;
  }
  const bool alone = bench.concurrency.size() == 1 && bench.rates.size() <= 1;
  return alone ? TextBlock(line, step) : TextLine(line, step, first);
}

}  // namespace gemmd::gemmctl
