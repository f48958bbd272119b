#include "server/rpc/sgemm_product.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/prepared_sgemm.h"
#include "proto/error_details.h"
#include "server/rpc/completion_loop.h"
#include "server/rpc/placement.h"
#include "server/rpc/sgemm_task.h"
#include "server/rpc/shared_operands.h"

namespace gemmd {

SgemmProduct::SgemmProduct(CallEnvironment* environment)
    : environment_(environment) {}

absl::Status SgemmProduct::Start(SgemmOrigin origin, const SgemmFields& fields,
                                 std::span<const ByteSlice> slices, Done done) {
  absl::StatusOr<TaskSpec> spec = Stage(origin, fields, slices);
  if (!spec.ok()) {
    ticket_ = Admission::Ticket();
    return spec.status();
  }
  spec_ = *std::move(spec);
  spec_.kernel = kernel_;
  if (plan_.is_resident()) client_ = origin.client;
  spec_.client = std::move(origin.client);
  spec_.deadline = origin.deadline;
  spec_.arrival = origin.arrival;
  spec_.decode_seconds = Seconds(MonotonicClock::now() - origin.arrival);
  done_ = std::move(done);
  if (!plan_.adds_to_shared_memory()) {
    parts_ = ShareRows(
        plan_.shape,
        static_cast<int>(environment_->dependencies.backend->devices().size()),
        environment_->options.split_flops);
  }
  // From here on the product may have ended when a step returns.
  if (plan_.in_place()) {
    AwaitTurn();
  } else if (plan_.is_resident()) {
    Place();
  } else {
    Submit();
  }
  return absl::OkStatus();
}

absl::StatusOr<TaskSpec> SgemmProduct::Stage(
    const SgemmOrigin& origin, const SgemmFields& fields,
    std::span<const ByteSlice> slices) {
  const RpcDependencies& dependencies = environment_->dependencies;
  const RpcOptions& options = environment_->options;
  SharedRegions* const regions = environment_->regions.get();
  const bool shares = origin.local && regions != nullptr;
  plan_.request_id = fields.request_id.head;  // for the log, if it has no plan
  absl::StatusOr<SgemmPlan> plan =
      PlanSgemm(fields, {.max_inline_bytes = options.max_inline_bytes,
                         .resident = dependencies.store != nullptr,
                         .shared_memory = shares});
  if (!plan.ok()) return plan.status();
  plan_ = *std::move(plan);
  planned_ = true;

  absl::StatusOr<const SgemmKernel*> kernel =
      SelectSgemmKernel(plan_, options.kernel, *dependencies.registry,
                        dependencies.backend->kernel_space());
  if (!kernel.ok()) return kernel.status();
  kernel_ = *kernel;
  absl::StatusOr<Admission::Ticket> ticket = dependencies.admission->Admit(
      origin.client, plan_.input_bytes + plan_.output_bytes);
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);
  absl::StatusOr<TaskSpec> spec =
      StageSgemm(plan_, slices, dependencies.backend->staging());
  if (!spec.ok() || !shares) return spec;
  absl::Status status = FindSharedOperands(plan_, *regions, *spec);
  if (!status.ok()) return status;
  return spec;
}

// The turn may come from the end of another product, on a thread of a device's
// and deep in that product's own steps; a worker takes it from there.
void SgemmProduct::AwaitTurn() {
  environment_->dependencies.request_log->Begin(
      client_, plan_.request_id, plan_.output.matrix_id,
      [this](RequestLog::Seen seen) {
        environment_->workers.Post([this, seen] { OnTurn(seen); });
      });
}

void SgemmProduct::OnTurn(RequestLog::Seen seen) {
  has_turn_ = seen == RequestLog::Seen::kNew;
  if (absl::Status status = cancelled(); !status.ok()) return End(status);
  if (has_turn_) return Place();
  output_id_ = plan_.output.matrix_id;
  TaskResult nothing;
  nothing.seconds.decode = spec_.decode_seconds;
  End(EncodeSgemmAnswer({.shape = plan_.shape,
                         .kernel = kernel_->info(),
                         .matrix_id = output_id_,
                         .replayed = true},
                        std::move(nothing), std::move(ticket_),
                        MonotonicClock::now(), &environment_->answers));
}

void SgemmProduct::EndTurn(bool applied) {
  if (!std::exchange(has_turn_, false)) return;
  environment_->dependencies.request_log->End(client_, plan_.request_id,
                                              plan_.output.matrix_id, applied);
}

// A copy is not worth the eviction of a matrix.
void SgemmProduct::Place() {
  if (absl::Status status = FindOperands(); !status.ok()) return End(status);
  const MatrixStore& store = *environment_->dependencies.store;
  const bool may_copy = store.used_bytes() < store.capacity_bytes() / 2;
  const bool is_split_where_it_lies =
      !parts_.empty() &&
      std::all_of(parts_.begin(), parts_.end(), [this](const RowPart& part) {
        return std::all_of(operands_.begin(), operands_.end(),
                           [&](const auto& matrix) {
                             return matrix->data(part.device) != nullptr;
                           });
      });
  if (!may_copy && !is_split_where_it_lies) return PlaceOnOne();
  PlaceOn(DeviceFor(may_copy));
}

// A split product keeps its parts, and with them its bits (I6).
void SgemmProduct::PlaceOnOne() {
  on_one_ = true;
  const int device = DeviceFor(/*copies=*/false);
  for (RowPart& part : parts_) part.device = device;
  PlaceOn(device);
}

void SgemmProduct::OnNotPlaced(const absl::Status& why) {
  const bool no_room = absl::IsResourceExhausted(why) ||
                       absl::IsOutOfRange(why);  // one device has less than all
  if (no_room && !on_one_) return PlaceOnOne();
  End(why);
}

int SgemmProduct::DeviceFor(bool copies) const {
  const RpcDependencies& dependencies = environment_->dependencies;
  std::vector<double> outstanding;
  for (const auto& device : dependencies.backend->devices()) {
    outstanding.push_back(
        dependencies.scheduler->outstanding(device->info().index));
  }
  return ChooseDevice(operands_, outstanding,
                      environment_->next_device.fetch_add(1), copies);
}

void SgemmProduct::PlaceOn(int device) {
  spec_.device = device;
  if (plan_.output.place == OutputPlan::Place::kResident) {
    if (absl::Status status = MakeRoomForOutput(); !status.ok()) {
      return OnNotPlaced(status);
    }
  }
  std::vector<int> devices;
  for (const RowPart& part : parts_) devices.push_back(part.device);
  if (devices.empty() || on_one_) devices.assign(1, device);
  std::vector<std::pair<std::shared_ptr<StoredMatrix>, int>> apart;
  for (const auto& matrix : operands_) {
    for (const int to : devices) {
      if (matrix->data(to) == nullptr) apart.emplace_back(matrix, to);
    }
  }
  placing_ = 1 + static_cast<int>(apart.size());
  for (auto& [matrix, to] : apart) {
    environment_->dependencies.store->CopyTo(
        std::move(matrix), to,
        [this](absl::Status status) { OnPlaced(status); });
  }
  OnPlaced(absl::OkStatus());
}

void SgemmProduct::OnPlaced(const absl::Status& status) {
  {
    MutexLock lock(&mu_);
    placing_error_.Update(status);
  }
  // acq_rel: the last one goes on with what all of them did.
  if (placing_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  absl::Status error;
  {
    MutexLock lock(&mu_);
    error = std::exchange(placing_error_, absl::OkStatus());
  }
  if (error.ok()) {
    if (parts_.empty()) KeepForms();
    return Submit();
  }
  OnNotPlaced(error);
}

absl::Status SgemmProduct::FindOperands() {
  absl::Status status = FindOperand("a", plan_.a, spec_.a);
  if (status.ok()) status = FindOperand("b", plan_.b, spec_.b);
  if (status.ok()) status = FindOperand("c", plan_.c, spec_.c);
  return status;
}

// On its device, and for the rows that others make on theirs.
absl::Status SgemmProduct::MakeRoomForOutput() {
  MatrixStore& store = *environment_->dependencies.store;
  // What an earlier try took.
  spec_.output_resident.reset();
  output_.reset();
  for (RowPart& part : parts_) part.output.reset();
  part_outputs_.clear();
  absl::StatusOr<std::unique_ptr<PendingOutput>> output =
      store.BeginOutput(client_, plan_.output.matrix_id, plan_.shape.m,
                        plan_.shape.n, plan_.output.ttl, spec_.device);
  if (!output.ok()) return output.status();
  output_ = *std::move(output);
  spec_.output_resident = output_->matrix();
  for (RowPart& part : parts_) {
    if (part.device == spec_.device) continue;
    output = store.BeginOutput(client_, /*id=*/"", part.rows, plan_.shape.n,
                               /*ttl=*/std::nullopt, part.device);
    if (!output.ok()) return output.status();
    part_outputs_.push_back(*std::move(output));  // never committed
    part.output = part_outputs_.back()->matrix();
  }
  return absl::OkStatus();
}

absl::Status SgemmProduct::FindOperand(absl::string_view name,
                                       const OperandPlan& plan,
                                       TaskOperand& operand) {
  if (plan.matrix_id.empty()) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<StoredMatrix>> found =
      environment_->dependencies.store->Find(client_, plan.matrix_id);
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

void SgemmProduct::KeepForms() {
  const PreparedSgemm* const prepared = kernel_->prepared();
  const GemmShape& shape = spec_.shape;
  if (prepared == nullptr ||
      !prepared->UsesForms({.shape = shape, .alpha = spec_.alpha})) {
    return;
  }
  const auto keep = [&](TaskOperand& operand, KDirection k) {
    if (operand.resident == nullptr) return;
    operand.form = environment_->dependencies.store->KeepForm(
        client_, operand.resident, spec_.device, *prepared, k);
  };
  keep(spec_.a, KDirectionOfA(shape));
  keep(spec_.b, KDirectionOfB(shape));
}

// From a task's end on the product may be gone.
void SgemmProduct::Submit() {
  Metrics* const metrics = environment_->dependencies.metrics;
  const double flops = plan_.shape.flops();
  const absl::Status status = parts_.empty() ? SubmitTask() : SubmitParts();
  if (status.ok()) metrics->Problem(flops);
}

absl::Status SgemmProduct::SubmitTask() {
  BatchScheduler& scheduler = *environment_->dependencies.scheduler;
  // Nothing else is ever held for others.
  const bool may_hold = spec_.b.resident != nullptr;
  const auto task = std::make_shared<Task>(
      std::move(spec_),
      [this](TaskResult result) { OnTaskDone(std::move(result)); });
  absl::Status status;
  {
    MutexLock lock(&mu_);
    task_ = task;
    status = cancelled_;
  }
  if (status.ok()) {
    status = scheduler.Submit(task, may_hold && CompletionLoop::AskForIdle());
  }
  // Whoever is first ends it: here, Cancel, or whoever has it from the
  // scheduler.
  if (!status.ok()) task->Abort(status);
  return status;
}

absl::Status SgemmProduct::SubmitParts() {
  const RpcDependencies& dependencies = environment_->dependencies;
  const auto split = std::make_shared<RowSplit>(
      std::move(spec_), std::move(parts_), dependencies.backend->devices(),
      *dependencies.scheduler,
      [this](TaskResult result) { OnTaskDone(std::move(result)); });
  absl::Status cancelled;
  {
    MutexLock lock(&mu_);
    split_ = split;
    cancelled = cancelled_;
  }
  if (!cancelled.ok()) split->Abort(cancelled);
  return split->Submit();
}

void SgemmProduct::Cancel(const absl::Status& why) {
  std::shared_ptr<Task> task;
  std::shared_ptr<RowSplit> split;
  {
    MutexLock lock(&mu_);
    cancelled_ = why;
    task = task_.lock();
    split = split_.lock();
  }
  if (task != nullptr) task->Abort(why);
  if (split != nullptr) split->Abort(why);
}

void SgemmProduct::OnTaskDone(TaskResult result) {
  if (result.ran) {
    run_ = {.device = result.device,
            .batch_size = result.batch_size,
            .seconds = result.seconds};
  }
  if (!result.status.ok()) return End(result.status);
  const MonotonicTime start = MonotonicClock::now();
  if (output_ != nullptr) {
    output_id_ = output_->id();
    output_->Commit();
  }
  const StageSeconds seconds = result.seconds;
  EncodedAnswer answer = EncodeSgemmAnswer(
      {.shape = plan_.shape,
       .kernel = kernel_->info(),
       .matrix_id = output_id_},
      std::move(result), std::move(ticket_), start, &environment_->answers);
  const double encode_seconds = Seconds(MonotonicClock::now() - start);
  if (run_.has_value()) run_->encode_seconds = encode_seconds;
  RecordStages(seconds, encode_seconds, *environment_->dependencies.metrics);
  End(std::move(answer));
}

// The one end of a product that was started.
void SgemmProduct::End(absl::StatusOr<EncodedAnswer> answer) {
  if (!answer.ok()) {
    CountShed(answer.status(), *environment_->dependencies.metrics);
  }
  // What was held is free, and the next one has its turn, before the caller
  // hears of the end.
  spec_ = TaskSpec();
  output_.reset();
  part_outputs_.clear();
  operands_.clear();
  ticket_ = Admission::Ticket();
  EndTurn(/*applied=*/answer.ok());
  Done done = std::move(done_);
  std::move(done)(std::move(answer));
}

void SgemmProduct::Describe(EndedRequest* request) const {
  request->request_id = plan_.request_id;
  if (planned_) {
    const GemmShape& shape = plan_.shape;
    request->shape = absl::StrCat(shape.m, "x", shape.n, "x", shape.k);
  }
  if (kernel_ != nullptr) request->kernel = kernel_->info().name;
  request->run = run_;
}

}  // namespace gemmd
