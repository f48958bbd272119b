// batch_bench: what several products at once cost, beside cuBLAS's own ways.
//
//   batch_bench [--seconds 0.05] [--section skinny|equal|mixed|bits]...
//
// Prints tables; every time is the median of a launch in microseconds. Products
// are checked by kernel_bench and the tests, not here.

#include "tests/bench/batch_bench/batch_bench.h"

#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "server/observe/build_info.h"

int main(int argc, char** argv) {
  CLI::App app("Times batches of products beside cuBLAS's own");
  double seconds = 0.05;
  std::vector<std::string> sections = {"skinny", "equal", "mixed", "bits"};
  app.add_option("--seconds", seconds, "of timing for each figure")
      ->capture_default_str();
  app.add_option("--section", sections, "what to measure (default: all)")
      ->check(CLI::IsMember(sections));
  CLI11_PARSE(app, argc, argv);

  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "batch_bench: no CUDA device: %s\n",
                 cudaGetErrorString(error));
    return 1;
  }
  gemmd::BatchBench bench(seconds);
  const auto library = gemmd::CublasLibrary::Get();
  cudaDeviceProp properties;
  gemmd::Check(cudaGetDeviceProperties(&properties, 0),
               "cudaGetDeviceProperties");
  std::printf("%s, CUDA %s, cuBLAS %s, commit %s\n", properties.name,
              std::string(gemmd::BuildCuda()).c_str(),
              (*library)->version().c_str(),
              std::string(gemmd::BuildRevision()).c_str());
  for (const std::string& section : sections) {
    if (section == "skinny") bench.Skinny();
    if (section == "equal") bench.Equal();
    if (section == "mixed") bench.Mixed();
    if (section == "bits") bench.Bits();
  }
}
