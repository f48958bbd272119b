#pragma once

#include <string>
#include <vector>

#include "tests/bench/kernel_bench/bench_case.h"

namespace gemmd {

struct BenchOptions {
  std::vector<std::string> kernels;  // empty: all
  std::vector<BenchCase> cases;
  double seconds = 0.3;  // of timing for each row
  std::string output;    // "": print only
  std::string command;   // how this run was asked for
};

// Measures every kernel on every case. Returns the exit code: 1 if a result was
// wrong or nothing could be measured.
int RunKernelBench(const BenchOptions& options);

}  // namespace gemmd
