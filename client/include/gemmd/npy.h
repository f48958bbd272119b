// Matrices in NumPy's .npy files: one float32 array of two dimensions a file.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmd/matrix.h"

namespace gemmd {

// What a file held. An array that NumPy stored in Fortran order is not copied
// into C order: `stored` then holds its transpose, which costs nothing, since a
// product takes a transposed operand as it is.
struct NpyMatrix {
  Matrix stored = {};
  bool transposed = false;  // the array is the transpose of `stored`

  // The array's own shape.
  int64_t rows() const { return transposed ? stored.cols() : stored.rows(); }
  int64_t cols() const { return transposed ? stored.rows() : stored.cols(); }
};

// Reads `path`: format versions 1 to 3, C or Fortran order, float32 of either
// byte order, two dimensions, nothing after the array.
//
// Errors:  NOT_FOUND for a missing file, RESOURCE_EXHAUSTED for one that memory
//          has no room for, INVALID_ARGUMENT for one that is not such an
//          array, else what the system said. Each message is one line that
//          begins with the path and says what was found, what is wanted and,
//          where NumPy can mend it, the call that does.
// Memory:  the array is read once, straight into `stored`. A header's claim is
//          checked against the file's size before memory is asked for.
absl::StatusOr<NpyMatrix> ReadNpy(const std::string& path);

// Writes `matrix` to `path` as little-endian float32 in C order, version 1.
//
// The file appears whole or not at all: it is written beside `path` under a
// temporary name and renamed, and an older file at `path` stays until then. A
// path that is there and is no regular file (a pipe, /dev/stdout) is written to
// as it is. A symbolic link stays and what it leads to is replaced; the mode of
// an older file stays.
//
// Errors:  what the system said, with the path.
absl::Status WriteNpy(const std::string& path, const MatrixView& matrix);

}  // namespace gemmd
