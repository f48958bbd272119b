#include "server/rpc/sgemm_product.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/completion_loop.h"
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
  loop_ = origin.loop;
  if (!plan_.adds_to_shared_memory()) {
    parts_ = ShareRows(
        plan_.shape,
        static_cast<int>(environment_->dependencies.backend->devices().size()),
        environment_->options.split_flops);
  }
  // What waits for its turn or a copy is waited for by a drain.
  if (plan_.is_resident()) decoding_ = environment_->decoding.AddHeld();
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
  absl::Status cancelled;
  {
    // Held over Begin, so that Cancel comes before it or finds it. A turn,
    // this one's or another's, only posts; OnTurn waits for the lock.
    MutexLock lock(&mu_);
    cancelled = cancelled_;
    if (cancelled.ok()) {
      turn_ = environment_->dependencies.request_log->Begin(
          client_, plan_.request_id, plan_.output.matrix_id,
          [this](RequestLog::Seen seen) {
            environment_->workers.Post([this, seen] { OnTurn(seen); });
          });
    }
  }
  if (!cancelled.ok()) End(cancelled);
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

void SgemmProduct::Place() {
  placing_.Begin({.environment = environment_,
                  .client = &client_,
                  .plan = &plan_,
                  .spec = &spec_,
                  .parts = &parts_},
                 [this](const absl::Status& status) {
                   if (!status.ok()) return End(status);
                   Submit();
                 });
}

// From a task's end on the product may be gone.
void SgemmProduct::Submit() {
  const LiveCount::Hold decoding = std::move(decoding_);  // until it is queued
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
    status = scheduler.Submit(task, may_hold && CompletionLoop::AskForMore());
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
  uint64_t turn;
  {
    MutexLock lock(&mu_);
    cancelled_ = why;
    task = task_.lock();
    split = split_.lock();
    turn = turn_;
  }
  if (task != nullptr) task->Abort(why);
  if (split != nullptr) split->Abort(why);
  if (turn != 0 && environment_->dependencies.request_log->Withdraw(
                       client_, plan_.output.matrix_id, turn)) {
    End(why);
  }
}

void SgemmProduct::OnTaskDone(TaskResult result) {
  if (loop_ == nullptr || !loop_->Takes(/*many=*/result.batch_size > 1)) {
    return Conclude(std::move(result));
  }
  loop_->Post([this, result = std::move(result)]() mutable {
    Conclude(std::move(result));
  });
}

void SgemmProduct::Conclude(TaskResult result) {
  if (result.ran) {
    run_ = {.device = result.device,
            .batch_size = result.batch_size,
            .seconds = result.seconds};
  }
  if (!result.status.ok()) return End(result.status);
  const MonotonicTime start = MonotonicClock::now();
  output_id_ = placing_.CommitOutput();
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
  placing_.Release();
  ticket_ = Admission::Ticket();
  EndTurn(/*applied=*/answer.ok());
  decoding_.reset();
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
