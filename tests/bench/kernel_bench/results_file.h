// kernels.json: the device, and one row for each kernel and case measured.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/kernel_bench/bench_case.h"
#include "tests/bench/kernel_bench/stopwatch.h"

namespace gemmd {

struct DeviceFacts {
  std::string name;
  std::string compute_capability;
  int multiprocessors = 0;
  std::string driver;
  std::string cuda;
  std::string cublas;
  double ffma_ceiling_tflops = 0;
  double copy_gb_per_second = 0;
};

// The facts of the device that is current, its ceilings measured.
DeviceFacts LookAtDevice();

struct ResultRow {
  std::string commit;
  std::string command;
  std::string date;  // "2026-11-30"
  std::string kernel;
  std::string precision;  // the wire's name
  BenchCase bench_case;
  Timing timing;
  std::string timing_method;  // "events" or "graph"
  double fraction_of_ceiling = 0;
  double ratio_to_cublas = 0;  // of speeds: above 1 is faster than cuBLAS
  double relative_error = 0;   // Frobenius norm
  double sm_clock_mhz = 0;
  double power_watts = 0;  // shown, not kept

  double tflops() const { return bench_case.flops() / timing.us_median * 1e-6; }
};

// Puts `rows` into the file: a row of the same kernel, precision and case is
// replaced, the others stay. A file of another form is left alone and an error.
absl::Status MergeResults(const std::string& path, const DeviceFacts& device,
                          const std::vector<ResultRow>& rows);

}  // namespace gemmd
