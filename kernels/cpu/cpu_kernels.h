// The kernels that run on the host.

#pragma once

#include <memory>

#include "kernels/registry.h"
#include "kernels/sgemm.h"

namespace gemmd {

// `openblas`: cblas_sgemm, one call a problem; unavailable where OpenBLAS is
// not installed.
KernelEntry OpenblasEntry();

// `reference`: float64 sums, rounded once; slow and as exact as float32 can be.
std::unique_ptr<const SgemmKernel> MakeReferenceSgemm();

}  // namespace gemmd
