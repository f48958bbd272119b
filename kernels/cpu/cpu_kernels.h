// The kernels that run on the host.

#pragma once

#include <memory>

#include "kernels/sgemm.h"

namespace gemmd {

// `openblas`: cblas_sgemm, one call a problem.
std::unique_ptr<const SgemmKernel> MakeOpenblasSgemm();

// `reference`: float64 sums, rounded once; slow and as exact as float32 can be.
std::unique_ptr<const SgemmKernel> MakeReferenceSgemm();

}  // namespace gemmd
