#include "server/rpc/product_placing.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/prepared_sgemm.h"
#include "proto/error_details.h"
#include "server/rpc/placement.h"

namespace gemmd {

void ProductPlacing::Begin(const Product& product, Done done) {
  product_ = product;
  done_ = std::move(done);
  if (absl::Status s = FindOperands(); !s.ok()) return End(s);
  Place();
}

std::string ProductPlacing::CommitOutput() {
  if (output_ == nullptr) return "";
  std::string id = output_->id();
  output_->Commit();
  return id;
}

void ProductPlacing::Release() {
  output_.reset();
  part_outputs_.clear();
  operands_.clear();
}

// A copy is not worth the eviction of a matrix.
void ProductPlacing::Place() {
  const bool may_copy = store().used_bytes() < store().capacity_bytes() / 2;
  if (!may_copy && !IsSplitWhereItLies()) return PlaceOnOne();
  PlaceOn(DeviceFor(may_copy));
}

bool ProductPlacing::IsSplitWhereItLies() const {
  const auto has_all = [this](const RowPart& part) {
    return std::all_of(operands_.begin(), operands_.end(),
                       [&](const auto& matrix) {
                         return matrix->data(part.device) != nullptr;
                       });
  };
  const std::vector<RowPart>& parts = *product_.parts;
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), has_all);
}

// A split product keeps its parts, and with them its bits (I6).
void ProductPlacing::PlaceOnOne() {
  on_one_ = true;
  const int device = DeviceFor(/*copies=*/false);
  for (RowPart& part : *product_.parts) part.device = device;
  PlaceOn(device);
}

void ProductPlacing::OnNotPlaced(const absl::Status& why) {
  const bool no_room = absl::IsResourceExhausted(why) ||
                       absl::IsOutOfRange(why);  // one device has less than all
  if (no_room && !on_one_) return PlaceOnOne();
  End(why);
}

int ProductPlacing::DeviceFor(bool copies) const {
  const RpcDependencies& dependencies = product_.environment->dependencies;
  std::vector<double> outstanding;
  for (const auto& device : dependencies.backend->devices()) {
    outstanding.push_back(
        dependencies.scheduler->outstanding(device->info().index));
  }
  return ChooseDevice(operands_, outstanding,
                      product_.environment->next_device.fetch_add(1), copies);
}

void ProductPlacing::PlaceOn(int device) {
  product_.spec->device = device;
  if (product_.plan->output.place == OutputPlan::Place::kResident) {
    if (absl::Status status = MakeRoomForOutput(); !status.ok()) {
      return OnNotPlaced(status);
    }
  }
  std::vector<int> devices;
  for (const RowPart& part : *product_.parts) devices.push_back(part.device);
  if (devices.empty() || on_one_) devices.assign(1, device);
  std::vector<std::pair<std::shared_ptr<StoredMatrix>, int>> apart;
  for (const auto& matrix : operands_) {
    for (const int to : devices) {
      if (matrix->data(to) == nullptr) apart.emplace_back(matrix, to);
    }
  }
  copies_ = 1 + static_cast<int>(apart.size());
  for (auto& [matrix, to] : apart) {
    store().CopyTo(std::move(matrix), to,
                   [this](absl::Status status) { OnPlaced(status); });
  }
  OnPlaced(absl::OkStatus());
}

void ProductPlacing::OnPlaced(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    error_.Update(status);
  }
  // acq_rel: the last one goes on with what all of them did.
  if (copies_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  absl::Status error;
  {
    MutexLock lock(&mu_);
    error = std::exchange(error_, absl::OkStatus());
  }
  if (!error.ok()) return OnNotPlaced(error);
  if (product_.parts->empty()) KeepForms();
  End(absl::OkStatus());
}

void ProductPlacing::End(const absl::Status& status) {
  Done done = std::move(done_);
  std::move(done)(status);
}

absl::Status ProductPlacing::FindOperands() {
  const SgemmPlan& plan = *product_.plan;
  TaskSpec& spec = *product_.spec;
  absl::Status status = FindOperand("a", plan.a, spec.a);
  if (status.ok()) status = FindOperand("b", plan.b, spec.b);
  if (status.ok()) status = FindOperand("c", plan.c, spec.c);
  return status;
}

absl::Status ProductPlacing::FindOperand(absl::string_view name,
                                         const OperandPlan& plan,
                                         TaskOperand& operand) {
  if (plan.matrix_id.empty()) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<StoredMatrix>> found =
      store().Find(*product_.client, plan.matrix_id);
  if (!found.ok()) return found.status();
  const auto& matrix = operands_.emplace_back(*std::move(found));
  if (static_cast<uint64_t>(matrix->rows()) != plan.rows ||
      static_cast<uint64_t>(matrix->cols()) != plan.cols) {
    return InvalidFieldError(
        name, absl::StrCat(name, " is said to be ", plan.rows, " x ", plan.cols,
                           "; the matrix ", plan.matrix_id, " is ",
                           matrix->rows(), " x ", matrix->cols()));
  }
  operand.resident = matrix;
  return absl::OkStatus();
}

// On its device, and for the rows that others make on theirs.
absl::Status ProductPlacing::MakeRoomForOutput() {
  const SgemmPlan& plan = *product_.plan;
  TaskSpec& spec = *product_.spec;
  // What an earlier try took.
  spec.output_resident.reset();
  output_.reset();
  for (RowPart& part : *product_.parts) part.output.reset();
  part_outputs_.clear();
  absl::StatusOr<std::unique_ptr<PendingOutput>> output =
      store().BeginOutput(*product_.client, plan.output.matrix_id, plan.shape.m,
                          plan.shape.n, plan.output.ttl, spec.device);
  if (!output.ok()) return output.status();
  output_ = *std::move(output);
  spec.output_resident = output_->matrix();
  for (RowPart& part : *product_.parts) {
    if (part.device == spec.device) continue;
    output =
        store().BeginOutput(*product_.client, /*id=*/"", part.rows,
                            plan.shape.n, /*ttl=*/std::nullopt, part.device);
    if (!output.ok()) return output.status();
    part_outputs_.push_back(*std::move(output));  // never committed
    part.output = part_outputs_.back()->matrix();
  }
  return absl::OkStatus();
}

// Forms of resident operands, for a kernel that makes such: without room for
// one, it is made for this product alone.
void ProductPlacing::KeepForms() {
  TaskSpec& spec = *product_.spec;
  const PreparedSgemm* const prepared = spec.kernel->prepared();
  if (prepared == nullptr ||
      !prepared->UsesForms({.shape = spec.shape, .alpha = spec.alpha})) {
    return;
  }
  const auto keep = [&](TaskOperand& operand, KDirection k) {
    if (operand.resident == nullptr) return;
    operand.form = store().KeepForm(*product_.client, operand.resident,
                                    spec.device, *prepared, k);
  };
  keep(spec.a, KDirectionOfA(spec.shape));
  keep(spec.b, KDirectionOfB(spec.shape));
}

}  // namespace gemmd
