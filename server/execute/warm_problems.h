// The products that a device runs before its first request.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sgemm.h"

namespace gemmd {

// Products that between them reach the code a kernel may load or choose late:
// every pair of transposes, with and without beta, square and one-row, for each
// size. An odd size makes rows that are not aligned. Pointers are null and
// every leading dimension is packed.
std::vector<SgemmArgs> WarmProblems(std::span<const int64_t> sizes);

}  // namespace gemmd
