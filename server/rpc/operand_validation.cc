#include "server/rpc/operand_validation.h"

#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/rpc/field_checks.h"

namespace gemmd {
namespace {

constexpr uint64_t kMaxDimension = std::numeric_limits<int64_t>::max();

// Operands that are not in the message.
absl::Status PlanElsewhere(absl::string_view name, const OperandFields& operand,
                           const SgemmLimits& limits, OperandPlan& plan) {
  if (const auto* resident = std::get_if<MatrixIdField>(&operand.source)) {
    const std::string path = absl::StrCat(name, ".matrix_id");
    if (absl::Status s = CheckMatrixId(path, resident->id); !s.ok()) return s;
    if (!limits.resident) {
      return absl::UnimplementedError(absl::StrCat(
          path, " is set, but this server keeps no resident matrices; send ",
          name, ".data"));
    }
    if (plan.leading_dimension != plan.cols) {
      return InvalidFieldError(
          absl::StrCat(name, ".leading_dimension"),
          absl::StrCat(name, ".leading_dimension is ", plan.leading_dimension,
                       "; a resident matrix is packed: ", plan.cols,
                       ", or 0 for that"));
    }
    plan.matrix_id = resident->id.head;
    return absl::OkStatus();
  }
  if (const auto* slice =
          std::get_if<SharedMemorySliceFields>(&operand.source)) {
    const std::string path = absl::StrCat(name, ".shared_memory");
    auto place =
        PlanShared(path, *slice, plan.rows, plan.cols, plan.leading_dimension);
    if (!place.ok()) return place.status();
    if (!limits.shared_memory) {
      return absl::UnimplementedError(absl::StrCat(
          path,
          " is set, but this call has no shared memory (--shared-memory, over "
          "the unix socket); send ",
          name, ".data"));
    }
    plan.shared = *std::move(place);
    return absl::OkStatus();
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

}  // namespace

bool MatrixBytes(uint64_t rows, uint64_t cols, uint64_t* bytes) {
  uint64_t elements;
  return !__builtin_mul_overflow(rows, cols, &elements) &&
         !__builtin_mul_overflow(elements, sizeof(float), bytes);
}

absl::Status CheckDimension(absl::string_view name, absl::string_view field,
                            uint64_t value) {
  if (value <= kMaxDimension) return absl::OkStatus();
  const std::string path = absl::StrCat(name, ".", field);
  return InvalidFieldError(
      path, absl::StrCat(path, " is ", value, "; at most ", kMaxDimension));
}

absl::StatusOr<SharedPlace> PlanShared(absl::string_view path,
                                       const SharedMemorySliceFields& slice,
                                       uint64_t rows, uint64_t cols,
                                       uint64_t leading_dimension) {
  if (absl::Status s = CheckSharedMemorySlice(path, slice); !s.ok()) return s;
  SharedPlace place;
  place.region_id = slice.region_id.head;
  place.offset = slice.offset;
  if (rows == 0 || cols == 0) return place;
  uint64_t elements, end;
  if (__builtin_mul_overflow(rows - 1, leading_dimension, &elements) ||
      __builtin_add_overflow(elements, cols, &elements) ||
      __builtin_mul_overflow(elements, sizeof(float), &place.bytes) ||
      __builtin_add_overflow(place.offset, place.bytes, &end)) {
    return InvalidFieldError(
        path,
        absl::StrCat(path, " at ", slice.offset, " with ", rows, " rows of ",
                     leading_dimension, " values ends beyond 2^64 bytes"));
  }
  return place;
}

absl::StatusOr<OperandPlan> PlanOperand(
    absl::string_view name, const std::optional<OperandFields>& operand,
    const SgemmLimits& limits) {
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
  if (data == nullptr) {
    status = PlanElsewhere(name, *operand, limits, plan);
  } else {
    plan.source = *data;
    status = CheckPayload(name, plan);
  }
  if (!status.ok()) return status;
  return plan;
}

}  // namespace gemmd
