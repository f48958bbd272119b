// What a matrix is known by.

#pragma once

#include <string>

#include "gemmd/matrix.h"

namespace gemmd::client {

// SHA-256 over the SHA-256s of consecutive 1 MiB blocks of the packed matrix:
// 32 bytes. The blocks of a large matrix are shared out to as many threads as
// there are cores, eight at most: the memory is no faster.
std::string Digest(const MatrixView& x);

}  // namespace gemmd::client
