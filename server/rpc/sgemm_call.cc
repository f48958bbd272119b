#include "server/rpc/sgemm_call.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/operand_copy.h"
#include "server/rpc/received_call.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_encoder.h"
#include "server/rpc/sgemm_task.h"
#include "server/rpc/sgemm_validation.h"

namespace gemmd {
namespace {

class SgemmCall final : public ReceivedCall {
 public:
  SgemmCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : ReceivedCall(environment, queue, Method::kSgemm) {
    environment->gemm_service.RequestSgemm(&context(), stream(), queue,
                                           arrival_tag());
  }

 private:
  void Renew() override { new SgemmCall(&environment(), queue()); }
  absl::Status Accept() override;
  void Received() override;
  void NotReceived(const absl::Status& why) override;
  void Cancelled(const absl::Status& why) override;
  void DescribeFailure(FailedRequest* request) override;

  void Handle();
  absl::StatusOr<TaskSpec> Decode();
  void Submit(TaskSpec spec);
  void OnTaskDone(TaskResult result);
  void EndUnanswered(const absl::Status& status);

  Admission::Ticket ticket_;  // from Decode to the answer

  // What is known of the product; set by Decode.
  std::string request_id_;
  std::optional<GemmShape> shape_;
  const SgemmKernel* kernel_ = nullptr;

  Mutex mu_;
  // Not an owner: a task that everybody has let go of ends, and so does this.
  std::weak_ptr<Task> task_ ABSL_GUARDED_BY(mu_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);  // not OK: by whom
};

// A product that has begun before the drain is waited for, also while its
// request is still on its way.
absl::Status SgemmCall::Accept() {
  CallEnvironment& env = environment();
  env.decoding.Add();  // before `refusing` is looked at: see RefuseNew
  if (!env.refusing.load(std::memory_order_relaxed)) return absl::OkStatus();
  env.decoding.Remove();
  env.dependencies.metrics->Shed(ShedReason::kDraining);
  return UnavailableRetryError("the server is draining; ask another or again",
                               absl::Seconds(1));
}

void SgemmCall::NotReceived(const absl::Status& why) {
  environment().decoding.Remove();
  Fail(why);
}

void SgemmCall::Received() {
  CallEnvironment& env = environment();
  const size_t bytes = request().Length();
  if (bytes > env.options.max_inline_bytes) {
    env.dependencies.metrics->Shed(ShedReason::kTooLarge);
    return NotReceived(LimitError(
        "--max-inline-bytes", env.options.max_inline_bytes,
        absl::StrCat("the request has ", bytes, " bytes; at most ",
                     env.options.max_inline_bytes, " (--max-inline-bytes)")));
  }
  env.inflight.Add(1);
  if (bytes > env.options.polling_thread_bytes) {
    env.workers.Post([this] { Handle(); });
  } else {
    Handle();
  }
}

// On the polling thread or a worker. The call may be gone when it returns.
void SgemmCall::Handle() {
  CallEnvironment& env = environment();
  absl::StatusOr<TaskSpec> spec = Decode();
  request().Clear();
  if (spec.ok()) {
    Submit(*std::move(spec));
  } else {
    CountShed(spec.status(), *env.dependencies.metrics);
    EndUnanswered(spec.status());
  }
  env.decoding.Remove();
}

void SgemmCall::EndUnanswered(const absl::Status& status) {
  environment().inflight.Add(-1);
  ticket_ = Admission::Ticket();
  Fail(status);
}

absl::StatusOr<TaskSpec> SgemmCall::Decode() {
  CallEnvironment& env = environment();
  absl::StatusOr<std::string> client = ClientIdentity(context());
  if (!client.ok()) return client.status();

  std::vector<grpc::Slice> pieces;
  if (!request().Dump(&pieces).ok()) {
    return absl::InternalError("the message could not be read");
  }
  const std::vector<ByteSlice> slices(pieces.begin(), pieces.end());
  absl::StatusOr<SgemmFields> fields = DecodeSgemm(slices);
  if (!fields.ok()) return fields.status();
  request_id_ = fields->request_id.head;
  absl::StatusOr<SgemmPlan> plan =
      PlanSgemm(*fields, {.max_inline_bytes = env.options.max_inline_bytes});
  if (!plan.ok()) return plan.status();
  shape_ = plan->shape;

  absl::StatusOr<const SgemmKernel*> kernel =
      SelectSgemmKernel(*plan, env.options.kernel, *env.dependencies.registry,
                        env.dependencies.backend->kernel_space());
  if (!kernel.ok()) return kernel.status();
  kernel_ = *kernel;
  absl::StatusOr<Admission::Ticket> ticket = env.dependencies.admission->Admit(
      *client, plan->input_bytes + plan->output_bytes);
  if (!ticket.ok()) return ticket.status();
  ticket_ = *std::move(ticket);

  absl::StatusOr<TaskSpec> spec =
      StageSgemm(*plan, slices, env.dependencies.backend->staging());
  if (!spec.ok()) return spec.status();
  spec->kernel = *kernel;
  spec->client = *std::move(client);
  spec->deadline = Deadline();
  spec->arrival = arrival();
  spec->decode_seconds = Seconds(MonotonicClock::now() - arrival());
  return spec;
}

void SgemmCall::Submit(TaskSpec spec) {
  const RpcDependencies& dependencies = environment().dependencies;
  const double flops = spec.shape.flops();
  const auto task = std::make_shared<Task>(
      std::move(spec),
      [this](TaskResult result) { OnTaskDone(std::move(result)); });
  absl::Status status;
  {
    MutexLock lock(&mu_);
    task_ = task;
    status = cancelled_;
  }
  if (status.ok()) status = dependencies.scheduler->Submit(task);
  // From a task's end on the call may be gone. Whoever is first ends it: here,
  // Cancelled, or whoever has it from the scheduler.
  if (status.ok()) {
    dependencies.metrics->Problem(flops);
  } else {
    task->Abort(std::move(status));
  }
}

void SgemmCall::Cancelled(const absl::Status& why) {
  std::shared_ptr<Task> task;
  {
    MutexLock lock(&mu_);
    cancelled_ = why;
    task = task_.lock();
  }
  if (task != nullptr) task->Abort(why);
}

void SgemmCall::OnTaskDone(TaskResult result) {
  const MonotonicTime start = MonotonicClock::now();
  CallEnvironment& env = environment();
  Metrics& metrics = *env.dependencies.metrics;
  if (!result.status.ok()) {
    CountShed(result.status, metrics);
    return EndUnanswered(result.status);
  }
  env.inflight.Add(-1);
  const StageSeconds seconds = result.seconds;
  const grpc::ByteBuffer answer =
      EncodeSgemmAnswer(*shape_, kernel_->info(), std::move(result),
                        std::move(ticket_), start, &env.answers);
  RecordStages(seconds, Seconds(MonotonicClock::now() - start), metrics);
  Answer(answer);
}

void SgemmCall::DescribeFailure(FailedRequest* request) {
  request->client = ClientIdentity(context()).value_or("");
  request->request_id = request_id_;
  if (shape_) {
    request->shape = absl::StrCat(shape_->m, "x", shape_->n, "x", shape_->k);
  }
  if (kernel_ != nullptr) request->kernel = kernel_->info().name;
}

}  // namespace

void OfferSgemmCalls(CallEnvironment* environment,
                     grpc::ServerCompletionQueue* queue) {
  for (int i = 0; i < environment->options.offered_calls; ++i) {
    new SgemmCall(environment, queue);
  }
}

}  // namespace gemmd
