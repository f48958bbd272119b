// How fast a matrix can be read at all: what a product of few rows is held to.

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gemmd {

// Reads `floats` (a multiple of 4) from `x`, 16-byte aligned, once. `sink` is
// never written.
void StreamRead(const float* x, int64_t floats, float* sink,
                cudaStream_t stream);

}  // namespace gemmd
