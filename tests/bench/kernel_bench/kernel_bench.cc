#include "tests/bench/kernel_bench/kernel_bench.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/registry.h"
#include "server/observe/build_info.h"
#include "tests/bench/kernel_bench/clock_sampler.h"
#include "tests/bench/kernel_bench/kept_sgemm.h"
#include "tests/bench/kernel_bench/operands.h"
#include "tests/bench/kernel_bench/oracle.h"
#include "tests/bench/kernel_bench/results_file.h"
#include "tests/bench/kernel_bench/stopwatch.h"

namespace gemmd {
namespace {

constexpr uint32_t kSeed = 20261130;
// Below this a launch's own cost shows: graph replays are timed instead.
constexpr double kGraphBelowUs = 50;

std::string WireName(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "PRECISION_FP32";
    case Precision::kFp32Emulated:
      return "PRECISION_FP32_EMULATED";
    case Precision::kTf32:
      return "PRECISION_TF32";
  }
  return "";
}

std::string DeviceUuid() {
  cudaDeviceProp device;
  Check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::string uuid = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) uuid += "-";
    uuid += absl::StrFormat("%02x",
                            static_cast<unsigned char>(device.uuid.bytes[i]));
  }
  return uuid;
}

// A kernel that gave a right result, and how long a launch seemed to take.
struct Candidate {
  const SgemmKernel* kernel;
  double relative_error;
  double us;
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options),
        registry_(KernelRegistry::Create()),
        device_(LookAtDevice()),
        sampler_(DeviceUuid()),
        cublas_workspace_(AllocateOnDevice<char>(kCublasWorkspaceBytes)) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "cudaStreamCreate");
    const auto library = CublasLibrary::Get();
    if (!library.ok()) return;
    auto handle = (*library)->CreateHandle(stream_, cublas_workspace_.get(),
                                           kCublasWorkspaceBytes);
    if (handle.ok()) cublas_ = *std::move(handle);
  }
  ~Bench() {
    cublas_ = {};
    cudaStreamDestroy(stream_);
  }

  int Run();

 private:
  bool IsWanted(const KernelInfo& info) const;
  void Measure(const BenchCase& c);
  std::optional<Candidate> Verify(const SgemmKernel& kernel,
                                  const Operands& operands,
                                  const Oracle& oracle);
  ResultRow Time(const Candidate& candidate, const BenchCase& c,
                 const Operands& operands, TimingMethod method);
  void Launch(const SgemmKernel& kernel, std::span<const SgemmArgs> problems);
  void Print(const ResultRow& row) const;

  const BenchOptions& options_;
  const KernelRegistry registry_;
  const DeviceFacts device_;
  ClockSampler sampler_;
  cudaStream_t stream_ = nullptr;
  DeviceArray<char> cublas_workspace_;
  CublasHandle cublas_;
  DeviceArray<char> workspace_;
  size_t workspace_bytes_ = 0;
  std::vector<ResultRow> rows_;
  int wrong_ = 0;
};

int Bench::Run() {
  std::printf("%s, driver %s, CUDA %s, cuBLAS %s, commit %s\n",
              device_.name.c_str(), device_.driver.c_str(),
              device_.cuda.c_str(), device_.cublas.c_str(),
              std::string(BuildRevision()).c_str());
  std::printf("measured: FFMA ceiling %.1f TFLOP/s, copy %.0f GB/s\n\n",
              device_.ffma_ceiling_tflops, device_.copy_gb_per_second);
  std::printf("%-24s%-22s%10s%10s%10s%9s%7s%8s%9s%8s%6s%5s\n", "kernel", "case",
              "min us", "median us", "p95 us", "TFLOP/s", "% max", "cuBLAS",
              "error", "timing", "MHz", "W");
  for (size_t i = 0; i < options_.cases.size(); ++i) {
    const BenchCase& c = options_.cases[i];
    std::fprintf(stderr, "[%zu/%zu] %s\n", i + 1, options_.cases.size(),
                 ToString(c).c_str());
    Measure(c);
  }
  if (!options_.output.empty()) {
    const absl::Status status = MergeResults(options_.output, device_, rows_);
    if (!status.ok()) {
      std::fprintf(stderr, "kernel_bench: %s\n", status.ToString().c_str());
      return 1;
    }
  }
  if (wrong_ > 0) std::printf("%d results were WRONG\n", wrong_);
  return wrong_ > 0 || rows_.empty() ? 1 : 0;
}

bool Bench::IsWanted(const KernelInfo& info) const {
  // cuBLAS always: the ratios are to this run's.
  return info.space == MemorySpace::kDevice &&
         (options_.kernels.empty() || info.name == "cublas" ||
          std::ranges::count(options_.kernels, info.name) > 0);
}

void Bench::Measure(const BenchCase& c) {
  Operands operands(c, kSeed);
  const Oracle oracle(operands.set(0));
  std::vector<std::unique_ptr<KeptSgemm>> kept;
  std::vector<Candidate> candidates;
  for (const KernelEntry& entry : registry_.entries()) {
    if (!IsWanted(entry.info)) continue;
    if (entry.kernel == nullptr) {
      std::printf("%-24s%s\n", entry.info.name.c_str(),
                  entry.unavailable_reason.c_str());
      continue;
    }
    const auto verify = [&](const SgemmKernel& kernel) {
      operands.PoisonFirstSet();
      const auto candidate = Verify(kernel, operands, oracle);
      if (candidate) candidates.push_back(*candidate);
    };
    verify(*entry.kernel);
    if (entry.kernel->prepared() == nullptr || c.batch > 1) continue;
    for (const bool keep_a : {false, true}) {
      kept.push_back(
          std::make_unique<KeptSgemm>(*entry.kernel, operands, keep_a));
      verify(*kept.back());
    }
  }
  TimingMethod method = TimingMethod::kEvents;
  for (const Candidate& candidate : candidates) {
    if (candidate.us < kGraphBelowUs) method = TimingMethod::kGraph;
  }
  const size_t first = rows_.size();
  for (const Candidate& candidate : candidates) {
    rows_.push_back(Time(candidate, c, operands, method));
  }
  const auto rows = std::span(rows_).subspan(first);
  const auto cublas = std::ranges::find(rows, "cublas", &ResultRow::kernel);
  for (ResultRow& row : rows) {
    if (cublas != rows.end()) {
      row.ratio_to_cublas = cublas->timing.us_median / row.timing.us_median;
    }
    Print(row);
  }
  std::fflush(stdout);
}

std::optional<Candidate> Bench::Verify(const SgemmKernel& kernel,
                                       const Operands& operands,
                                       const Oracle& oracle) {
  for (const SgemmArgs& args : operands.set(0)) {
    const absl::Status status = kernel.Supports(args);
    if (status.ok()) continue;
    std::printf("%-24s%s\n", kernel.info().name.c_str(),
                std::string(status.message()).c_str());
    return std::nullopt;
  }
  workspace_bytes_ = kernel.WorkspaceBytes(operands.set(0));
  workspace_ = AllocateOnDevice<char>(std::max<size_t>(workspace_bytes_, 1));
  Launch(kernel, operands.set(0));
  Check(cudaStreamSynchronize(stream_), kernel.info().name.c_str());
  const Errors errors = oracle.Compare();
  const bool bounded = kernel.info().precision != Precision::kTf32;
  if (!(errors.frobenius < 1e-3) || (bounded && errors.worst_of_bound > 1)) {
    std::printf(
        "%-24sWRONG: relative error %.1e, worst element %.1e of its "
        "bound\n",
        kernel.info().name.c_str(), errors.frobenius, errors.worst_of_bound);
    ++wrong_;
    return std::nullopt;
  }
  const double us = EstimateMicroseconds(
      [&](int i) { Launch(kernel, operands.set(i % operands.sets())); },
      stream_);
  return Candidate{&kernel, errors.frobenius, us};
}

ResultRow Bench::Time(const Candidate& candidate, const BenchCase& c,
                      const Operands& operands, TimingMethod method) {
  const SgemmKernel& kernel = *candidate.kernel;
  workspace_bytes_ = kernel.WorkspaceBytes(operands.set(0));
  workspace_ = AllocateOnDevice<char>(std::max<size_t>(workspace_bytes_, 1));
  sampler_.Take();
  ResultRow row;
  row.timing = TimeLaunches(
      method, [&](int i) { Launch(kernel, operands.set(i % operands.sets())); },
      operands.sets(), candidate.us, options_.seconds, stream_);
  const ClockSampler::Reading reading = sampler_.Take();
  row.commit = std::string(BuildRevision());
  row.command = options_.command;
  row.date = absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone());
  row.kernel = kernel.info().name;
  row.precision = WireName(kernel.info().precision);
  row.bench_case = c;
  row.timing_method = method == TimingMethod::kGraph ? "graph" : "events";
  row.fraction_of_ceiling = row.tflops() / device_.ffma_ceiling_tflops;
  row.relative_error = candidate.relative_error;
  row.sm_clock_mhz = reading.sm_clock_mhz;
  row.power_watts = reading.power_watts;
  return row;
}

void Bench::Launch(const SgemmKernel& kernel,
                   std::span<const SgemmArgs> problems) {
  const absl::Status status =
      kernel.Launch(problems, {.stream = stream_,
                               .cublas = cublas_.get(),
                               .workspace = workspace_.get(),
                               .workspace_bytes = workspace_bytes_});
  if (status.ok()) return;
  std::fprintf(stderr, "kernel_bench: %s: %s\n", kernel.info().name.c_str(),
               status.ToString().c_str());
  std::exit(1);
}

void Bench::Print(const ResultRow& r) const {
  std::printf("%-24s%-22s%10.2f%10.2f%10.2f%9.2f%7.1f%8.3f%9.1e%8s%6.0f%5.0f\n",
              r.kernel.c_str(), ToString(r.bench_case).c_str(), r.timing.us_min,
              r.timing.us_median, r.timing.us_p95, r.tflops(),
              100 * r.fraction_of_ceiling, r.ratio_to_cublas, r.relative_error,
              r.timing_method.c_str(), r.sm_clock_mhz, r.power_watts);
}

}  // namespace

int RunKernelBench(const BenchOptions& options) { return Bench(options).Run(); }

}  // namespace gemmd
