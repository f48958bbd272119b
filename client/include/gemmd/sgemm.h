// One product as a caller asks for it, and what comes back.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gemmd/matrix.h"
#include "gemmd/resident_matrix.h"

namespace gemmd {

// Leaves a product on the server instead of bringing it back.
struct ResidentOutput {
  // A matrix of the product's shape, which the product takes the place of; it
  // may be an operand too. As `c` of the call, the product is added into it.
  // Null: a new matrix, which comes in SgemmAnswer::resident. Once written to,
  // a handle has no source any more (UploadOptions::source_lives).
  ResidentMatrix* into = nullptr;

  // For a new one, as in UploadOptions.
  std::string id = {};
  std::optional<absl::Duration> ttl = {};
};

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

  // In the caller's memory (a MatrixView) or on the server (a ResidentMatrix).
  Operand a = {};            // as stored: op(A) is m x k
  Operand b = {};            // as stored: op(B) is k x n
  Operand c = {};            // m x n; given exactly when beta != 0
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
  // it holds after an error is not said. A product that adds to `c` in shared
  // memory is not tried again after a lost connection: it may have run.
  MutableMatrixView output = {};

  // Given: C stays on the server, and `output` has no data.
  std::optional<ResidentOutput> resident_output = {};

  // At most 64 bytes; names a product that changes a resident matrix which it
  // reads (an accumulation, or X := X W), so that the server never applies it
  // twice. Empty: the library draws one a call, and its own retries are safe.
  // Give one to repeat a call that ended with an error.
  std::string request_id = {};
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

  bool replayed = false;  // an accumulation that had been applied before
};

// What came of an SgemmCall.
struct SgemmAnswer {
  Matrix c;  // m x n, packed; empty when the call had an output of its own
  ResidentMatrix resident;  // the new one that ResidentOutput asked for
  SgemmExecution execution;
  int attempts = 1;        // 1 plus the retries
  bool verified = false;   // the product was checked, see ClientOptions
  absl::Duration elapsed;  // as the caller saw it, from the call on
};

}  // namespace gemmd
