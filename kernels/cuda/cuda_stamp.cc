#include <cuda_runtime.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/tuning_device.h"

namespace gemmd {
namespace {

// "580.159.04": the first word of digits and dots in what the driver's module
// says of itself. Without that (in some containers), the version of CUDA that
// the driver supports.
std::string DriverVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (absl::ascii_isdigit(word[0]) && word.find('.') != word.npos) {
      return word;
    }
  }
  int version = 0;
  cudaDriverGetVersion(&version);
  return absl::StrCat("for CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

absl::StatusOr<SelectionStamp> DeviceStamp(std::string build) {
  int device = 0;
  cudaDeviceProp properties;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();  // or the next call would report it again
    return absl::FailedPreconditionError("there is no CUDA device");
  }
  const auto cublas = CublasLibrary::Get();
  return SelectionStamp{.gpu = properties.name,
                        .driver = DriverVersion(),
                        .cuda = absl::StrCat(CUDART_VERSION / 1000, ".",
                                             CUDART_VERSION % 1000 / 10),
                        .cublas = cublas.ok() ? (*cublas)->version() : "none",
                        .build = std::move(build)};
}

}  // namespace gemmd
