// A matrix as the wire sees it: its rows one after another, without padding.

#pragma once

#include <cstddef>

#include "gemmd/matrix.h"

namespace gemmd::client {

// Bytes of one message of a transfer, and of what a digest is made of.
inline constexpr size_t kChunkBytes = size_t{1} << 20;

// Copies `count` numbers of the packed matrix, from number `first` on, to `to`.
void CopyPacked(const MatrixView& x, size_t first, size_t count, void* to);

// The packed bytes [4 * first, 4 * (first + count)) where they lie, or null
// when padding comes between them.
const float* InPlace(const MatrixView& x, size_t first, size_t count);

}  // namespace gemmd::client
