// Random operands on the device, and a quick look at a result: what tuning
// needs besides a clock.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/sgemm.h"

namespace gemmd {

// Makes `size` values uniform in [-1, 1], the same ones each time.
absl::Status FillUniform(float* x, int64_t size, CUstream_st* stream);

// Compares elements of C, 1024 of them or all if there are no more, with the
// float64 product of A and B, for alpha 1 and beta 0. *worst, in device memory,
// becomes the largest error's share of the bound of PRECISION_FP32
// (kernels/reference.h), as the bits of a float; NaN for a NaN. Asynchronous on
// `stream`; INTERNAL if the launch fails.
absl::Status CheckSamples(const SgemmArgs& product, uint32_t* worst,
                          CUstream_st* stream);

}  // namespace gemmd
