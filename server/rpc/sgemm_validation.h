// From a request's fields to a plan that the rest of the server can trust: the
// one place where a product from the wire is judged (I4).

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/sgemm.h"
#include "server/rpc/operand_validation.h"
#include "server/rpc/sgemm_fields.h"
#include "server/schedule/task.h"

namespace gemmd {

// Where the product goes.
struct OutputPlan {
  enum class Place { kInline, kResident, kShared };
  Place place = Place::kInline;
  std::string matrix_id;              // kResident; empty: one is minted
  std::optional<absl::Duration> ttl;  // kResident
  SharedPlace shared;                 // kShared
  int64_t leading_dimension = 0;      // kShared
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
  std::string request_id;

  OperandPlan a;
  OperandPlan b;
  OperandPlan c;
  OutputPlan output;
  // Of staging memory: what is inline of A, of B and, unless it stands where
  // the product will, of C; then the product [m, n], packed, if it is inline.
  size_t input_bytes = 0;
  size_t output_bytes = 0;

  bool has_product() const { return shape.m != 0 && shape.n != 0; }
  bool reads_inputs() const {
    return alpha != 0.0f && shape.k != 0 && has_product();
  }
  bool reads_c() const { return beta != 0.0f && has_product(); }

  // Some of it is looked up in the store.
  bool is_resident() const {
    return output.place == OutputPlan::Place::kResident ||
           !a.matrix_id.empty() || !b.matrix_id.empty() || !c.matrix_id.empty();
  }

  // What it writes is among what it reads, so that doing it twice is not the
  // same as doing it once.
  bool in_place() const {
    const std::string& id = output.matrix_id;
    return !id.empty() &&
           ((reads_c() && c.matrix_id == id) ||
            (reads_inputs() && (a.matrix_id == id || b.matrix_id == id)));
  }

  // Likewise, in its client's memory: once some rows are done, there is no
  // going back.
  bool adds_to_shared_memory() const {
    return reads_c() && output.place == OutputPlan::Place::kShared &&
           c.shared.region_id == output.shared.region_id &&
           c.shared.offset == output.shared.offset;
  }
};

// Judges a request.
//
// Errors: INVALID_ARGUMENT with the field's path for whatever cannot be right;
// OUT_OF_RANGE, naming the flag, when the answer would be over the limit;
// UNIMPLEMENTED for well-formed places that `limits` does not have.
absl::StatusOr<SgemmPlan> PlanSgemm(const SgemmFields& fields,
                                    const SgemmLimits& limits);

}  // namespace gemmd
