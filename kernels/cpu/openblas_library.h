// OpenBLAS, loaded when the program runs.
//
// Not linked: a linked OpenBLAS takes 60 KiB of every thread's stack for its
// thread-local memory, which leaves small-stacked threads of other libraries
// too little, and it starts its own threads before main. A GPU server does not
// need it at all.

#pragma once

#include <cblas.h>

#include "absl/status/statusor.h"

namespace gemmd {

// The functions of OpenBLAS that the project calls.
//
// Thread-safe.
struct OpenblasLibrary {
  decltype(&::cblas_sgemm) sgemm = nullptr;

  // The process's OpenBLAS; the first call loads it, and it stays loaded.
  // NOT_FOUND, with what was tried (for the log), where there is none.
  static absl::StatusOr<OpenblasLibrary> Get();
};

}  // namespace gemmd
