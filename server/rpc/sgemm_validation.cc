#include "server/rpc/sgemm_validation.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/sgemm.pb.h"
#include "proto/error_details.h"
#include "server/rpc/field_checks.h"

namespace gemmd {
namespace {

constexpr size_t kStagingAlignment = 256;

// What an answer has besides the product.
constexpr size_t kAnswerHeaderBytes = 512;

size_t AlignUp(size_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment *
         kStagingAlignment;
}

absl::StatusOr<Precision> ToPrecision(int32_t value) {
  switch (value) {
    case v1::PRECISION_UNSPECIFIED:
    case v1::PRECISION_FP32:
      return Precision::kFp32;
    case v1::PRECISION_FP32_EMULATED:
      return Precision::kFp32Emulated;
    case v1::PRECISION_TF32:
      return Precision::kTf32;
    default:
      return InvalidFieldError("precision", absl::StrCat("precision is ", value,
                                                         "; 0 to 3 are known"));
  }
}

absl::StatusOr<Priority> ToPriority(int32_t value) {
  switch (value) {
    case v1::PRIORITY_UNSPECIFIED:
    case v1::PRIORITY_INTERACTIVE:
      return Priority::kInteractive;
    case v1::PRIORITY_BULK:
      return Priority::kBulk;
    default:
      return InvalidFieldError("priority", absl::StrCat("priority is ", value,
                                                        "; 0 to 2 are known"));
  }
}

// op(A), op(B) and C must fit together.
absl::Status PlanShape(const SgemmFields& fields, SgemmPlan& plan) {
  const auto rows = [](const OperandPlan& x, bool transpose) {
    return static_cast<int64_t>(transpose ? x.cols : x.rows);
  };
  plan.shape.transpose_a = fields.transpose_a;
  plan.shape.transpose_b = fields.transpose_b;
  plan.shape.m = rows(plan.a, fields.transpose_a);
  plan.shape.k = rows(plan.a, !fields.transpose_a);
  plan.shape.n = rows(plan.b, !fields.transpose_b);
  const int64_t b_rows = rows(plan.b, fields.transpose_b);
  if (b_rows != plan.shape.k) {
    return InvalidFieldError(
        "b", absl::StrCat("op(A) is ", plan.shape.m, " x ", plan.shape.k,
                          " and op(B) is ", b_rows, " x ", plan.shape.n,
                          "; op(B) must have ", plan.shape.k, " rows"));
  }
  if (fields.c.has_value() && (rows(plan.c, false) != plan.shape.m ||
                               rows(plan.c, true) != plan.shape.n)) {
    return InvalidFieldError(
        "c",
        absl::StrCat("c is ", plan.c.rows, " x ", plan.c.cols,
                     "; the product is ", plan.shape.m, " x ", plan.shape.n));
  }
  return absl::OkStatus();
}

// C is there exactly when it is read.
absl::Status PlanC(const SgemmFields& fields, const SgemmLimits& limits,
                   SgemmPlan& plan) {
  if (fields.c.has_value() != (plan.beta != 0.0f)) {
    return fields.c.has_value()
               ? InvalidFieldError(
                     "c",
                     "c is set but beta is 0, so it would not be read; "
                     "leave c out or set beta")
               : InvalidFieldError(
                     "c", absl::StrCat("c is missing; beta is ", plan.beta,
                                       ", so it is needed"));
  }
  if (!fields.c.has_value()) return absl::OkStatus();
  auto c = PlanOperand("c", fields.c, limits);
  if (!c.ok()) return c.status();
  plan.c = *c;
  return absl::OkStatus();
}

absl::Status PlanResidentOutput(const ResidentOutputFields& fields,
                                const SgemmLimits& limits, OutputPlan& output) {
  if (fields.matrix_id.size > 0) {
    absl::Status s =
        CheckMatrixId("output.resident.matrix_id", fields.matrix_id);
    if (!s.ok()) return s;
  }
  if (fields.ttl.has_value()) {
    auto ttl = CheckTtl("output.resident.ttl", *fields.ttl);
    if (!ttl.ok()) return ttl.status();
    output.ttl = *ttl;
  }
  if (!limits.resident) {
    return absl::UnimplementedError(
        "output.resident is set, but this server keeps no resident matrices; "
        "ask for output.inline");
  }
  output.place = OutputPlan::Place::kResident;
  output.matrix_id = fields.matrix_id.head;
  return absl::OkStatus();
}

absl::Status PlanSharedOutput(const SharedMemoryOutputFields& fields,
                              const GemmShape& shape, const SgemmLimits& limits,
                              OutputPlan& output) {
  absl::Status s = CheckLeadingDimension("output.shared_memory",
                                         fields.leading_dimension, shape.n);
  if (!s.ok()) return s;
  const uint64_t leading_dimension =
      fields.leading_dimension == 0 ? shape.n : fields.leading_dimension;
  s = CheckDimension("output.shared_memory", "leading_dimension",
                     leading_dimension);
  if (!s.ok()) return s;
  auto place = PlanShared("output.shared_memory.slice",
                          fields.slice.value_or(SharedMemorySliceFields{}),
                          shape.m, shape.n, leading_dimension);
  if (!place.ok()) return place.status();
  if (!limits.shared_memory) {
    return absl::UnimplementedError(
        "output.shared_memory is set, but this call has no shared memory "
        "(--shared-memory, over the unix socket); ask for output.inline");
  }
  output.place = OutputPlan::Place::kShared;
  output.shared = *std::move(place);
  output.leading_dimension = static_cast<int64_t>(leading_dimension);
  return absl::OkStatus();
}

// A product that is written over what it is made from would be neither; but for
// C itself, which may be updated in its place.
absl::Status CheckNoOverlap(absl::string_view name, const OperandPlan& operand,
                            const SharedPlace& output) {
  const SharedPlace& in = operand.shared;
  if (in.region_id != output.region_id || in.bytes == 0 || output.bytes == 0 ||
      in.offset >= output.offset + output.bytes ||
      output.offset >= in.offset + in.bytes) {
    return absl::OkStatus();
  }
  return InvalidFieldError(
      "output.shared_memory.slice",
      absl::StrCat("output.shared_memory.slice has the bytes ", output.offset,
                   " to ", output.offset + output.bytes, " and ", name,
                   ".shared_memory the bytes ", in.offset, " to ",
                   in.offset + in.bytes,
                   " of one region; they must not overlap"));
}

absl::Status PlanOutput(const SgemmFields& fields, const SgemmLimits& limits,
                        SgemmPlan& plan) {
  const OutputFields& output = fields.output;
  if (const auto* resident = std::get_if<ResidentOutputFields>(&output)) {
    return PlanResidentOutput(*resident, limits, plan.output);
  }
  const auto* shared = std::get_if<SharedMemoryOutputFields>(&output);
  if (shared == nullptr) return absl::OkStatus();
  absl::Status status =
      PlanSharedOutput(*shared, plan.shape, limits, plan.output);
  if (!status.ok()) return status;
  status.Update(CheckNoOverlap("a", plan.a, plan.output.shared));
  status.Update(CheckNoOverlap("b", plan.b, plan.output.shared));
  const bool in_place =
      plan.c.shared.region_id == plan.output.shared.region_id &&
      plan.c.shared.offset == plan.output.shared.offset &&
      plan.c.leading_dimension ==
          static_cast<uint64_t>(plan.output.leading_dimension);
  if (!in_place) {
    status.Update(CheckNoOverlap("c", plan.c, plan.output.shared));
  }
  return status;
}

// What an inline product holds; an error if the answer would be too large.
absl::StatusOr<size_t> InlineOutputBytes(const SgemmLimits& limits,
                                         const GemmShape& shape) {
  uint64_t bytes;
  const bool fits = MatrixBytes(shape.m, shape.n, &bytes) &&
                    bytes <= limits.max_inline_bytes &&
                    limits.max_inline_bytes - bytes >= kAnswerHeaderBytes;
  if (fits) return bytes;
  return LimitError(
      "--max-inline-bytes", limits.max_inline_bytes,
      absl::StrCat("the answer would hold ", shape.m, " x ", shape.n,
                   " values of 4 bytes; an inline answer may have ",
                   limits.max_inline_bytes,
                   " bytes (--max-inline-bytes). Split the product, or ask for "
                   "a resident or shared output"));
}

absl::Status PlanMemory(const SgemmLimits& limits, SgemmPlan& plan) {
  uint64_t bytes;
  if (plan.output.place == OutputPlan::Place::kInline) {
    auto output_bytes = InlineOutputBytes(limits, plan.shape);
    if (!output_bytes.ok()) return output_bytes.status();
    plan.output_bytes = *output_bytes;
  } else if (!MatrixBytes(plan.shape.m, plan.shape.n, &bytes)) {
    return LimitError(
        "--matrix-store-bytes", std::numeric_limits<uint64_t>::max(),
        absl::StrCat("the product would hold ", plan.shape.m, " x ",
                     plan.shape.n,
                     " values of 4 bytes, more than any device or store "
                     "(--matrix-store-bytes)"));
  }
  const auto place = [&](OperandPlan& operand) {
    if (operand.staged_bytes() == 0) return;
    operand.offset = AlignUp(plan.input_bytes);
    plan.input_bytes = operand.offset + operand.staged_bytes();
  };
  if (plan.reads_inputs()) {
    place(plan.a);
    place(plan.b);
  }
  if (plan.reads_c() && plan.output.place != OutputPlan::Place::kInline) {
    place(plan.c);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SgemmPlan> PlanSgemm(const SgemmFields& fields,
                                    const SgemmLimits& limits) {
  SgemmPlan plan;
  plan.alpha = fields.alpha.value_or(1.0f);
  plan.beta = fields.beta.value_or(0.0f);
  const ShortText kernel = fields.kernel.value_or(ShortText{});
  plan.kernel = kernel.head;

  auto precision = ToPrecision(fields.precision);
  if (!precision.ok()) return precision.status();
  plan.precision = *precision;
  auto priority = ToPriority(fields.priority);
  if (!priority.ok()) return priority.status();
  plan.priority = *priority;

  absl::Status status = CheckTextSize("kernel", kernel, kMaxKernelNameBytes);
  status.Update(
      CheckTextSize("request_id", fields.request_id, kMaxRequestIdBytes));
  if (!status.ok()) return status;
  plan.request_id = fields.request_id.head;

  auto a = PlanOperand("a", fields.a, limits);
  if (!a.ok()) return a.status();
  plan.a = *a;
  auto b = PlanOperand("b", fields.b, limits);
  if (!b.ok()) return b.status();
  plan.b = *b;
  status = PlanC(fields, limits, plan);
  if (status.ok()) status = PlanShape(fields, plan);
  if (status.ok()) status = PlanOutput(fields, limits, plan);
  if (status.ok()) status = PlanMemory(limits, plan);
  if (!status.ok()) return status;
  return plan;
}

}  // namespace gemmd
