// kernel_bench: verifies, then times each CUDA kernel over many shapes.
//
//   kernel_bench [--kernel NAME]... [--shape 1024x512x256:TN*8]...
//                [--cases FILE] [--seconds 0.3] [--output kernels.json]
//
// Prints a row for each kernel and shape and puts it into the output file. A
// kernel whose result is wrong is not timed, and the exit code is then 1.

#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/kernel_bench/kernel_bench.h"

int main(int argc, char** argv) {
  CLI::App app("Verifies, then times the CUDA kernels of gemmd");
  gemmd::BenchOptions options;
  std::vector<std::string> shapes;
  app.add_option("--kernel", options.kernels,
                 "kernels to measure, beside cublas (default: all)");
  app.add_option("--shape", shapes,
                 "as 1024x512x256, 1024x512x256:TN or 64x64x64*1024 "
                 "(default: a long list)");
  std::string cases;
  app.add_option("--cases", cases, "a file of shapes, one a line, # comments");
  app.add_option("--seconds", options.seconds, "of timing for each row")
      ->capture_default_str();
  app.add_option("--output", options.output,
                 "the JSON file to put the rows into");
  CLI11_PARSE(app, argc, argv);

  if (!cases.empty()) {
    std::ifstream file(cases);
    for (std::string line; std::getline(file, line);) {
      line = line.substr(0, line.find_first_of(" #"));
      if (!line.empty()) shapes.push_back(line);
    }
    if (shapes.empty()) {
      std::fprintf(stderr, "kernel_bench: no shapes in %s\n", cases.c_str());
      return 2;
    }
  }
  for (const std::string& text : shapes) {
    const auto parsed = gemmd::ParseBenchCase(text);
    if (!parsed.ok()) {
      std::fprintf(stderr, "kernel_bench: %s\n",
                   std::string(parsed.status().message()).c_str());
      return 2;
    }
    options.cases.push_back(*parsed);
  }
  if (options.cases.empty()) options.cases = gemmd::DefaultBenchCases();
  options.command = absl::StrCat(
      "kernel_bench", argc > 1 ? " " : "",
      absl::StrJoin(std::vector<std::string>(argv + 1, argv + argc), " "));

  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "kernel_bench: no CUDA device: %s\n",
                 cudaGetErrorString(error));
    return 1;
  }
  return gemmd::RunKernelBench(options);
}
