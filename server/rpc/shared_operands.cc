#include "server/rpc/shared_operands.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

absl::Status FindSlice(absl::string_view path, const SharedPlace& place,
                       const SharedRegions& regions, HostSlice& slice) {
  if (place.region_id.empty()) return absl::OkStatus();
  std::shared_ptr<SharedRegion> region = regions.Find(place.region_id);
  if (region == nullptr) {
    return ResourceNotFoundError(
        "gemmd.v1.SharedMemorySlice", path,
        absl::StrCat(path,
                     " names a region that is not there: never registered, or "
                     "its connection has ended"));
  }
  const size_t size = region->size();
  if (place.offset > size || place.bytes > size - place.offset) {
    return InvalidFieldError(
        path,
        absl::StrCat(path, " has the bytes ", place.offset, " to ",
                     place.offset + place.bytes, " of a region of ", size));
  }
  slice.data = region->data() + place.offset;
  slice.region = std::move(region);
  return absl::OkStatus();
}

absl::Status FindOperand(absl::string_view path, const OperandPlan& plan,
                         const SharedRegions& regions, TaskOperand& operand) {
  if (plan.shared.region_id.empty()) return absl::OkStatus();
  operand.leading_dimension = static_cast<int64_t>(plan.leading_dimension);
  return FindSlice(path, plan.shared, regions, operand.shared);
}

}  // namespace

absl::Status FindSharedOperands(const SgemmPlan& plan,
                                const SharedRegions& regions, TaskSpec& spec) {
  absl::Status status = FindOperand("a.shared_memory", plan.a, regions, spec.a);
  status.Update(FindOperand("b.shared_memory", plan.b, regions, spec.b));
  status.Update(FindOperand("c.shared_memory", plan.c, regions, spec.c));
  status.Update(FindSlice("output.shared_memory.slice", plan.output.shared,
                          regions, spec.output_shared));
  spec.output_leading_dimension = plan.output.leading_dimension;
  return status;
}

}  // namespace gemmd
