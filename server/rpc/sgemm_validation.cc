#include "server/rpc/sgemm_validation.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "gemmd/v1/sgemm.pb.h"
#include "proto/error_details.h"
#include "server/rpc/field_checks.h"

namespace gemmd {
namespace {

constexpr uint64_t kMaxDimension = std::numeric_limits<int64_t>::max();
constexpr size_t kStagingAlignment = 256;

// What an answer has besides the product.
constexpr size_t kAnswerHeaderBytes = 512;

size_t AlignUp(size_t bytes) {
  return (bytes + kStagingAlignment - 1) / kStagingAlignment *
         kStagingAlignment;
}

// rows * cols * 4; false if that is over 64 bits.
bool MatrixBytes(uint64_t rows, uint64_t cols, uint64_t* bytes) {
  uint64_t elements;
  return !__builtin_mul_overflow(rows, cols, &elements) &&
         !__builtin_mul_overflow(elements, sizeof(float), bytes);
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

absl::Status CheckDimension(absl::string_view name, absl::string_view field,
                            uint64_t value) {
  if (value <= kMaxDimension) return absl::OkStatus();
  const std::string path = absl::StrCat(name, ".", field);
  return InvalidFieldError(
      path, absl::StrCat(path, " is ", value, "; at most ", kMaxDimension));
}

// The seam for operands that are not in the message: where resident matrices
// and shared memory will be looked up.
absl::Status CheckNotInline(absl::string_view name,
                            const OperandFields& operand) {
  if (const auto* resident = std::get_if<MatrixIdField>(&operand.source)) {
    const std::string path = absl::StrCat(name, ".matrix_id");
    if (absl::Status s = CheckMatrixId(path, resident->id); !s.ok()) return s;
    return absl::UnimplementedError(absl::StrCat(
        path, " is set, but this server keeps no resident matrices; send ",
        name, ".data"));
  }
  if (const auto* slice =
          std::get_if<SharedMemorySliceFields>(&operand.source)) {
    const std::string path = absl::StrCat(name, ".shared_memory");
    if (absl::Status s = CheckSharedMemorySlice(path, *slice); !s.ok()) {
      return s;
    }
    return absl::UnimplementedError(absl::StrCat(
        path, " is set, but this server has no shared memory; send ", name,
        ".data"));
  }
  return InvalidFieldError(name,
                           absl::StrCat(name,
                                        " has none of data, matrix_id and "
                                        "shared_memory; one is wanted"));
}

// Judges how many bytes the operand has for its shape.
absl::Status CheckPayload(absl::string_view name, const OperandPlan& plan) {
  const bool has_elements = plan.rows != 0 && plan.cols != 0;
  if (!has_elements && plan.source.size == 0) return absl::OkStatus();
  uint64_t full;
  const bool fits = MatrixBytes(plan.rows, plan.leading_dimension, &full);
  const uint64_t padding =
      plan.rows == 0 ? 0 : (plan.leading_dimension - plan.cols) * sizeof(float);
  if (fits &&
      (plan.source.size == full || plan.source.size == full - padding)) {
    return absl::OkStatus();
  }
  const std::string path = absl::StrCat(name, ".data");
  std::string wanted;
  if (!fits) {
    wanted = absl::StrCat(plan.rows, " rows of ", plan.leading_dimension,
                          " values are more than 2^64 bytes");
  } else if (padding == 0) {
    wanted = absl::StrCat("rows * cols * 4 = ", full);
  } else {
    wanted =
        absl::StrCat("rows * leading_dimension * 4 = ", full, ", or ",
                     full - padding, " without the padding of the last row");
  }
  return InvalidFieldError(
      path, absl::StrCat(path, " has ", plan.source.size, " bytes; ", wanted));
}

absl::StatusOr<OperandPlan> PlanOperand(
    absl::string_view name, const std::optional<OperandFields>& operand) {
  if (!operand.has_value()) {
    return InvalidFieldError(name, absl::StrCat(name, " is missing"));
  }
  OperandPlan plan;
  plan.rows = operand->rows;
  plan.cols = operand->cols;
  plan.leading_dimension = operand->leading_dimension == 0
                               ? operand->cols
                               : operand->leading_dimension;
  absl::Status status = CheckDimension(name, "rows", plan.rows);
  status.Update(CheckDimension(name, "cols", plan.cols));
  status.Update(
      CheckDimension(name, "leading_dimension", plan.leading_dimension));
  status.Update(
      CheckLeadingDimension(name, operand->leading_dimension, operand->cols));
  if (!status.ok()) return status;
  const auto* data = std::get_if<ByteRange>(&operand->source);
  if (data == nullptr) return CheckNotInline(name, *operand);
  plan.source = *data;
  if (absl::Status s = CheckPayload(name, plan); !s.ok()) return s;
  return plan;
}

absl::Status CheckOutput(const OutputFields& output) {
  if (const auto* resident = std::get_if<ResidentOutputFields>(&output)) {
    if (resident->matrix_id.size > 0) {
      absl::Status s =
          CheckMatrixId("output.resident.matrix_id", resident->matrix_id);
      if (!s.ok()) return s;
    }
    if (resident->ttl.has_value()) {
      absl::Status s = CheckTtl("output.resident.ttl", *resident->ttl);
      if (!s.ok()) return s;
    }
    return absl::UnimplementedError(
        "output.resident is set, but this server keeps no resident matrices; "
        "ask for output.inline");
  }
  if (const auto* shared = std::get_if<SharedMemoryOutputFields>(&output)) {
    absl::Status s = CheckSharedMemorySlice(
        "output.shared_memory.slice",
        shared->slice.value_or(SharedMemorySliceFields{}));
    if (!s.ok()) return s;
    return absl::UnimplementedError(
        "output.shared_memory is set, but this server has no shared memory; "
        "ask for output.inline");
  }
  return absl::OkStatus();
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
absl::Status PlanC(const SgemmFields& fields, SgemmPlan& plan) {
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
  auto c = PlanOperand("c", fields.c);
  if (!c.ok()) return c.status();
  plan.c = *c;
  return absl::OkStatus();
}

absl::Status PlanMemory(const SgemmLimits& limits, SgemmPlan& plan) {
  uint64_t bytes;
  const bool fits = MatrixBytes(plan.shape.m, plan.shape.n, &bytes) &&
                    bytes <= limits.max_inline_bytes &&
                    limits.max_inline_bytes - bytes >= kAnswerHeaderBytes;
  if (!fits) {
    return LimitError(
        "--max-inline-bytes", limits.max_inline_bytes,
        absl::StrCat("the answer would hold ", plan.shape.m, " x ",
                     plan.shape.n,
                     " values of 4 bytes; an inline answer may have ",
                     limits.max_inline_bytes,
                     " bytes (--max-inline-bytes). Split the product, or ask "
                     "for a resident or shared output"));
  }
  plan.output_bytes = bytes;
  if (plan.alpha != 0.0f && plan.shape.k != 0 && bytes != 0) {
    plan.b.offset = AlignUp(plan.a.packed_bytes());
    plan.input_bytes = plan.b.offset + plan.b.packed_bytes();
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

  auto a = PlanOperand("a", fields.a);
  if (!a.ok()) return a.status();
  plan.a = *a;
  auto b = PlanOperand("b", fields.b);
  if (!b.ok()) return b.status();
  plan.b = *b;
  status = PlanC(fields, plan);
  status.Update(PlanShape(fields, plan));
  status.Update(CheckOutput(fields.output));
  if (!status.ok()) return status;
  if (status = PlanMemory(limits, plan); !status.ok()) return status;
  return plan;
}

}  // namespace gemmd
