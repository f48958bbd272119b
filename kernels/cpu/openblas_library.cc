#include "kernels/cpu/openblas_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr const char* kName = "libopenblas.so.0";

absl::StatusOr<OpenblasLibrary> Load() {
  void* const library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "OpenBLAS was not found (", dlerror(),
        "). Install libopenblas0, or name its folder in LD_LIBRARY_PATH"));
  }
  OpenblasLibrary functions;
  functions.sgemm = reinterpret_cast<decltype(functions.sgemm)>(
      dlsym(library, "cblas_sgemm"));
  if (functions.sgemm == nullptr) {
    return absl::NotFoundError(absl::StrCat(kName, " has no cblas_sgemm"));
  }
  return functions;
}

}  // namespace

absl::StatusOr<OpenblasLibrary> OpenblasLibrary::Get() {
  static const absl::StatusOr<OpenblasLibrary> library = Load();
  return library;
}

}  // namespace gemmd
