// What this binary was built from.

#pragma once

#include "absl/strings/string_view.h"

namespace gemmd {

// Semantic version, as "0.1.0".
absl::string_view BuildVersion();

// The source revision at configuration, as "1f2e3d4c5b6a"; "unknown" outside a
// git checkout.
absl::string_view BuildRevision();

// The CUDA Toolkit's version, as "13.0.48"; "none" in a build for the CPU
// alone.
absl::string_view BuildCuda();

// The compiler, as "GNU 12.2.0".
absl::string_view BuildCompiler();

}  // namespace gemmd
