#include <cuda_runtime.h>

#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_library.h"
#include "server/observe/build_info.h"
#include "tests/bench/kernel_bench/ceiling.h"
#include "tests/bench/kernel_bench/cuda_owner.h"
#include "tests/bench/kernel_bench/results_file.h"

namespace gemmd {
namespace {

// "580.159.04": the first word of dots and digits in what the driver's module
// says of itself.
std::string DriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (absl::ascii_isdigit(word[0]) && word.find('.') != word.npos) {
      return word;
    }
  }
  return "unknown";
}

}  // namespace

DeviceFacts LookAtDevice() {
  int device = 0;
  cudaDeviceProp properties;
  Check(cudaGetDevice(&device), "cudaGetDevice");
  Check(cudaGetDeviceProperties(&properties, device),
        "cudaGetDeviceProperties");
  const auto cublas = CublasLibrary::Get();
  return {.name = properties.name,
          .compute_capability =
              absl::StrCat(properties.major, ".", properties.minor),
          .multiprocessors = properties.multiProcessorCount,
          .driver = DriverVersion(),
          .cuda = std::string(BuildCuda()),
          .cublas = cublas.ok() ? (*cublas)->version() : "none",
          .ffma_ceiling_tflops = MeasureFfmaFlops() * 1e-12,
          .copy_gb_per_second = MeasureCopyBytesPerSecond() * 1e-9};
}

}  // namespace gemmd
