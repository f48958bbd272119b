// selection_check: how good `auto` is on shapes that it was not tuned on.
//
//   selection_check [--shapes 200] [--seed N]... [--table FILE]
//                   [--output FILE] [--tune --build NAME]
//
// With --tune the table is measured first, as `gemmd --tune` does it, and
// written to FILE: so tables/ is made.
//
// Draws random shapes, measures every kernel on each, and compares the one that
// `auto` takes with the fastest, for PRECISION_FP32 and for
// PRECISION_FP32_EMULATED. Gives, for each sample, the share of shapes on which
// `auto` is within 3 % of the fastest, then a row for each shape and precision.
// It measures as tuning does (small products four in a launch; ProductsOf) or,
// with --alone, one product in a launch.
//
// Shapes: m is log-uniform in 1 .. 8192, n and k in 16 .. 8192; in one half all
// three are rounded up to multiples of 16; each of the four transposes alike;
// rows packed, so that what is no multiple of 4 is not aligned.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/refining.h"
#include "kernels/registry.h"
#include "kernels/selection.h"
#include "kernels/selection_cache.h"
#include "kernels/selection_table.h"
#include "kernels/tuning.h"
#include "kernels/tuning_device.h"

namespace gemmd {
namespace {

constexpr double kTolerance = 1.03;

struct Options {
  int shapes = 200;
  std::vector<uint32_t> seeds = {4};  // a sample for each
  std::string table;
  std::string output;
  bool tune = false;
  bool alone = false;
  std::string build = "unknown";
};

GemmShape RandomShape(std::mt19937& random) {
  const auto log_uniform = [&](double low, double high) {
    std::uniform_real_distribution<double> log(std::log2(low), std::log2(high));
    return static_cast<int64_t>(std::lround(std::exp2(log(random))));
  };
  GemmShape s = {log_uniform(1, 8192), log_uniform(16, 8192),
                 log_uniform(16, 8192)};
  if (random() % 2 == 0) {
    for (int64_t* size : {&s.m, &s.n, &s.k}) *size = (*size + 15) / 16 * 16;
  }
  s.transpose_a = random() % 2 == 1;
  s.transpose_b = random() % 2 == 1;
  return s;
}

bool IsFirstStep(const std::string& name) {
  return name == "naive" || name == "block_tiled" || name == "conflict_free";
}

struct Measured {
  const SgemmKernel* kernel;
  double us;
};

class SelectionCheck {
 public:
  SelectionCheck(const KernelRegistry& registry, TuningDevice& device,
                 bool alone)
      : registry_(registry), device_(device), alone_(alone) {}

  absl::Status Check(const GemmShape& s, int index) {
    const SgemmArgs args = {
        .shape = s, .lda = StoredColsA(s), .ldb = StoredColsB(s), .ldc = s.n};
    std::vector<Measured> all;
    for (const KernelEntry& entry : registry_.entries()) {
      if (entry.kernel == nullptr || entry.info.space != MemorySpace::kDevice) {
        continue;
      }
      // The ladder's first steps take seconds where others take milliseconds,
      // and are never the fastest there.
      if (s.flops() > 1e9 && IsFirstStep(entry.info.name)) continue;
      const auto us = device_.Microseconds(*entry.kernel, args,
                                           alone_ ? 1 : ProductsOf(args));
      if (us.ok()) {
        all.push_back({entry.kernel.get(), *us});
      } else if (!absl::IsFailedPrecondition(us.status())) {
        return us.status();
      }
    }
    for (const Precision precision :
         {Precision::kFp32, Precision::kFp32Emulated}) {
      absl::Status status = Compare(args, precision, all, index);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::string Summary() const {
    std::string text;
    for (const int emulated : {0, 1}) {
      absl::StrAppendFormat(
          &text,
          "# %s: within 3 %% of the fastest on %d of %d shapes (%.1f %%), "
          "%.1f %% slower in the mean\n",
          emulated == 1 ? "FP32_EMULATED" : "FP32", within_[emulated],
          count_[emulated], 100.0 * within_[emulated] / count_[emulated],
          100.0 * (std::exp(log_ratio_[emulated] / count_[emulated]) - 1));
    }
    return text;
  }
  const std::string& rows() const { return rows_; }

 private:
  absl::Status Compare(const SgemmArgs& args, Precision precision,
                       const std::vector<Measured>& all, int index) {
    const auto chosen =
        SelectKernel(registry_, MemorySpace::kDevice, args, precision, "auto");
    if (!chosen.ok()) return chosen.status();
    const Measured* best = nullptr;
    double us = 0;
    std::string others;
    for (const Measured& m : all) {
      if (m.kernel->info().precision > precision) continue;
      if (best == nullptr || m.us < best->us) best = &m;
      if (m.kernel == *chosen) us = m.us;
      absl::StrAppendFormat(&others, " %s=%.2f", m.kernel->info().name, m.us);
    }
    if (us == 0) return absl::InternalError("auto took what was not measured");
    const GemmShape& s = args.shape;
    const int emulated = precision == Precision::kFp32Emulated ? 1 : 0;
    const double ratio = us / best->us;
    ++count_[emulated];
    within_[emulated] += ratio <= kTolerance ? 1 : 0;
    log_ratio_[emulated] += std::log(ratio);
    const std::string row = absl::StrFormat(
        "%3d %-14s%6d%6d%6d %s%s auto=%s %.3f best=%s%s\n", index,
        emulated == 1 ? "FP32_EMULATED" : "FP32", s.m, s.n, s.k,
        s.transpose_a ? "T" : "N", s.transpose_b ? "T" : "N",
        (*chosen)->info().name, ratio, best->kernel->info().name, others);
    rows_ += row;
    return absl::OkStatus();
  }

  const KernelRegistry& registry_;
  TuningDevice& device_;
  const bool alone_;
  std::string rows_;
  int count_[2] = {};
  int within_[2] = {};
  double log_ratio_[2] = {};
};

int Fail(const absl::Status& status) {
  std::cerr << "selection_check: " << status.message() << std::endl;
  return 1;
}

absl::Status TuneInto(const Options& options, const KernelRegistry& registry,
                      TuningDevice& device) {
  const auto stamp = DeviceStamp(options.build);
  if (!stamp.ok()) return stamp.status();
  const auto table = TuneFinely(
      registry, device, *stamp, [](int done, int of, absl::string_view what) {
        // A line for each class, and one for what is wrong.
        if (of > 0 && done % (of / SelectionClass::kCount) != 0) {
          return;
        }
        absl::FPrintF(stderr, "[%d/%d] %s\n", done, of, what);
      });
  if (!table.ok()) return table.status();
  return WriteSelectionCache(options.table, *table);
}

int Run(const Options& options, const std::string& command) {
  KernelRegistry registry = KernelRegistry::Create();
  auto device = CreateCudaTuningDevice();
  if (!device.ok()) return Fail(device.status());
  if (options.tune) {
    const absl::Status status = TuneInto(options, registry, **device);
    if (!status.ok()) return Fail(status);
  }
  if (!options.table.empty()) {
    std::ostringstream text;
    text << std::ifstream(options.table).rdbuf();
    auto table = SelectionTable::Parse(text.str());
    if (!table.ok()) return Fail(table.status());
    registry.UseTable(
        std::make_shared<const SelectionTable>(*std::move(table)));
  }
  const auto stamp = DeviceStamp("");
  if (!stamp.ok()) return Fail(stamp.status());
  std::string report;
  for (const uint32_t seed : options.seeds) {
    SelectionCheck check(registry, **device, options.alone);
    std::mt19937 random(seed);
    for (int i = 0; i < options.shapes; ++i) {
      const absl::Status status = check.Check(RandomShape(random), i + 1);
      if (!status.ok()) return Fail(status);
    }
    absl::StrAppend(&report, "# seed ", seed, "\n", check.Summary(),
                    check.rows());
    std::cout << "# seed " << seed << "\n" << check.Summary();
  }
  const std::string head = absl::StrCat(
      "# ", command, "\n# ", stamp->gpu, ", driver ", stamp->driver, ", CUDA ",
      stamp->cuda, ", cuBLAS ", stamp->cublas, "; table of build ",
      registry.table() == nullptr ? "none" : registry.table()->stamp().build,
      "\n# number, precision, m, n, k, transposes, what auto takes and how "
      "much "
      "slower that is than the fastest; microseconds of each kernel\n");
  if (options.output.empty()) {
    std::cout << head << report;
  } else {
    std::ofstream file(options.output);
    file << head << report;
    file.close();
    if (!file) return Fail(absl::InternalError("cannot write the output"));
  }
  return 0;
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  CLI::App app("Compares what auto takes with the fastest kernel");
  gemmd::Options options;
  app.add_option("--shapes", options.shapes, "how many")->capture_default_str();
  app.add_option("--seed", options.seeds, "of the shapes; a sample for each")
      ->capture_default_str();
  app.add_option("--table", options.table,
                 "a selection table (default: what ships for the device)");
  app.add_option("--output", options.output, "a file for the rows");
  app.add_flag("--alone", options.alone, "one product in a launch");
  app.add_flag("--tune", options.tune, "measure the table first")
      ->needs("--table");
  app.add_option("--build", options.build, "what the table says of the build")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::string command = "selection_check";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return gemmd::Run(options, command);
}
