#include "server/rpc/sgemm_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/rpc/client_identity.h"
#include "server/rpc/message_slices.h"
#include "server/rpc/received_call.h"
#include "server/rpc/refusals.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_encoder.h"
#include "server/rpc/sgemm_product.h"
#include "server/rpc/sgemm_task.h"

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
  void DescribeEnd(EndedRequest* request) override {
    product_.Describe(request);
  }

  void Handle();
  absl::Status Start();

  SgemmProduct product_{&environment()};
};

// A product that has begun before the drain is waited for, also while its
// request is still on its way.
absl::Status SgemmCall::Accept() {
  CallEnvironment& env = environment();
  env.decoding.Add();  // before `refusing` is looked at: see RefuseNew
  absl::Status status;
  if (env.refusing.load(std::memory_order_relaxed)) {
    env.dependencies.metrics->Shed(ShedReason::kDraining);
    status = DrainingError();
  } else {
    status = Admit(Role::kCompute).status();
  }
  if (!status.ok()) env.decoding.Remove();
  return status;
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
  if (absl::Status status = Start(); !status.ok()) {
    CountShed(status, *env.dependencies.metrics);
    env.inflight.Add(-1);
    Fail(status);
  }
  env.decoding.Remove();
}

absl::Status SgemmCall::Start() {
  const MessageSlices message(request());
  request().Clear();
  absl::StatusOr<SgemmFields> fields = DecodeSgemm(message.slices());
  if (!fields.ok()) return fields.status();
  return product_.Start(
      {.client = client(),
       .local = environment().regions != nullptr && IsLocal(context()),
       .arrival = arrival(),
       .deadline = Deadline(),
       .loop = loop()},
      *fields, message.slices(), [this](absl::StatusOr<EncodedAnswer> answer) {
        environment().inflight.Add(-1);
        if (!answer.ok()) return Fail(answer.status());
        Answer(ToMessage(*answer));
      });
}

void SgemmCall::Cancelled(const absl::Status& why) { product_.Cancel(why); }

}  // namespace

void OfferSgemmCalls(CallEnvironment* environment,
                     grpc::ServerCompletionQueue* queue) {
  for (int i = 0; i < environment->options.offered_calls; ++i) {
    new SgemmCall(environment, queue);
  }
}

}  // namespace gemmd
