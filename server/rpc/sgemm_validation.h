// From a request's fields to a plan that the rest of the server can trust: the
// one place where a product from the wire is judged (I4).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/sgemm.h"
#include "server/rpc/sgemm_fields.h"
#include "server/schedule/task.h"

namespace gemmd {

struct SgemmLimits {
  // A whole request message, and a whole answer. --max-inline-bytes
  size_t max_inline_bytes = size_t{256} << 20;
};

// Where an operand lies in the message and where it goes. On the wire a row is
// `leading_dimension` elements after the one before; staged, rows are packed.
struct OperandPlan {
  ByteRange source;
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t leading_dimension = 0;
  size_t offset = 0;  // in its staging block; a multiple of 256

  size_t packed_bytes() const { return rows * cols * sizeof(float); }
};

// A product that makes sense. Only what the product reads has a size: with
// alpha 0 or k 0, A and B stay where they are (input_bytes is 0); with beta 0
// there is no C to read.
struct SgemmPlan {
  GemmShape shape;
  float alpha = 1.0f;
  float beta = 0.0f;
  Precision precision = Precision::kFp32;
  Priority priority = Priority::kInteractive;
  std::string kernel;  // "", "auto" or a name

  OperandPlan a;
  OperandPlan b;
  OperandPlan c;
  size_t input_bytes = 0;   // A, then B
  size_t output_bytes = 0;  // C [m, n], packed

  bool reads_inputs() const { return input_bytes > 0; }
  bool reads_c() const { return beta != 0.0f && output_bytes > 0; }
};

// Judges a request.
//
// Errors: INVALID_ARGUMENT with the field's path for whatever cannot be right;
// OUT_OF_RANGE, naming the flag, when the answer would be over the limit;
// UNIMPLEMENTED for operands and outputs that are well-formed but not inline.
absl::StatusOr<SgemmPlan> PlanSgemm(const SgemmFields& fields,
                                    const SgemmLimits& limits);

}  // namespace gemmd
