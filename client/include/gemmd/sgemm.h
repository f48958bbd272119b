// One product as a caller asks for it, and what comes back.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gemmd/matrix.h"

namespace gemmd {

// C = alpha * op(A) * op(B) + beta * C in single precision, BLAS semantics:
// with beta == 0, C is not read; with alpha == 0, neither A nor B counts; a
// size of 0 is a valid product; NaN and infinity go the way of IEEE 754.
struct SgemmCall {
  // The arithmetic asked for, at least; gemmd.v1.Precision has the bounds.
  enum class Precision {
    kFp32,          // IEEE binary32 FMA throughout
    kFp32Emulated,  // tensor cores, with the error bound of kFp32
    kTf32,          // TF32 tensor cores: 10-bit mantissas
  };
  enum class Priority {
    kInteractive,
    kBulk,  // uses what interactive work leaves
  };

  MatrixView a = {};         // as stored: op(A) is m x k
  MatrixView b = {};         // as stored: op(B) is k x n
  MatrixView c = {};         // m x n; given exactly when beta != 0
  bool transpose_a = false;  // op(A) is the transpose of `a`
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;
  Precision precision = Precision::kFp32;
  std::string kernel = {};  // a name from ServerInfo; empty or "auto": the
                            // server's choice
  Priority priority = Priority::kInteractive;

  // From the call to its answer, connecting and retries included; absent:
  // ClientOptions::timeout.
  std::optional<absl::Duration> timeout = {};

  // Where to write C, m x n; without data, the answer brings a matrix of its
  // own. May be the memory of `c`, and overlaps nothing else of the call. What
  // it holds after an error is not said.
  MutableMatrixView output = {};
};

// How the server ran a product.
struct SgemmExecution {
  std::string kernel;
  uint32_t device = 0;  // index into ServerInfo::devices
  SgemmCall::Precision precision = SgemmCall::Precision::kFp32;  // really used
  uint32_t batch_size = 0;  // requests that shared the run, this one included

  // What the server spent on each stage of this request.
  absl::Duration decode;
  absl::Duration queue;
  absl::Duration h2d;  // operands to the device
  absl::Duration compute;
  absl::Duration d2h;  // the product back
  absl::Duration encode;
};

// What came of an SgemmCall.
struct SgemmAnswer {
  Matrix c;  // m x n, packed; empty when the call had an output of its own
  SgemmExecution execution;
  int attempts = 1;        // 1 plus the retries
  absl::Duration elapsed;  // as the caller saw it, from the call on
};

}  // namespace gemmd
