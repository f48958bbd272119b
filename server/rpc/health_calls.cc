#include "server/rpc/health_calls.h"

#include <grpcpp/support/async_stream.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/unary_call.h"

namespace gemmd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

grpc::ByteBuffer ToAnswer(Health health) {
  HealthCheckResponse answer;
  switch (health) {
    case Health::kServing:
      answer.set_status(HealthCheckResponse::SERVING);
      break;
    case Health::kNotServing:
      answer.set_status(HealthCheckResponse::NOT_SERVING);
      break;
    case Health::kServiceUnknown:
      answer.set_status(HealthCheckResponse::SERVICE_UNKNOWN);
      break;
  }
  return ToRaw(answer);
}

class CheckCall final : public UnaryCall {
 public:
  CheckCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : UnaryCall(environment, queue, Method::kHealthCheck) {
    environment->health_service.RequestCheck(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new CheckCall(&environment(), queue()); }

  void Begin() override {
    const auto request_message = FromRaw<HealthCheckRequest>(&request());
    if (!request_message.ok()) return Fail(request_message.status());
    const std::string& service = request_message->service();
    const Health health = environment().health.Get(service);
    if (health == Health::kServiceUnknown) {
      return Fail(absl::NotFoundError(
          "no such service; \"\", gemmd.v1.GemmService, liveness and readiness "
          "are known"));
    }
    Answer(ToAnswer(health));
  }
};

// Writes one state at a time; of those that come meanwhile only the last is
// worth writing.
class WatchCall final : public Call, private HealthWatcher {
 public:
  WatchCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kHealthWatch) {
    environment->health_service.RequestWatch(&context(), &request_, &writer_,
                                             queue, queue, arrival_tag());
  }

  // Other threads call this watcher only under the registry's lock, so after
  // Unwatch none does.
  ~WatchCall() override { environment().health.Unwatch(this); }

 private:
  void Renew() override { new WatchCall(&environment(), queue()); }

  void Begin() override {
    const auto request_message = FromRaw<HealthCheckRequest>(&request_);
    if (!request_message.ok()) return Close(request_message.status());
    environment().health.Watch(request_message->service(), this);
  }

  void Cancelled(const absl::Status& why) override { Close(why); }

  void OnHealth(Health health) override {
    MutexLock lock(&mu_);
    if (end_.has_value()) return;
    if (writing_) {
      next_ = health;
      return;
    }
    writing_ = true;
    writer_.Write(ToAnswer(health), wrote_.tag());
  }

  void OnEnd() override {
    Close(
        UnavailableRetryError("the server is shutting down", absl::Seconds(1)));
  }

  void Close(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (end_.has_value()) return;
    end_ = status;
    if (!writing_) writer_.Finish(End(*end_), finish_tag());
  }

  void Wrote(bool ok) {
    MutexLock lock(&mu_);
    writing_ = false;
    if (end_.has_value()) {
      writer_.Finish(End(*end_), finish_tag());
    } else if (ok && next_.has_value()) {
      writing_ = true;
      writer_.Write(ToAnswer(*next_), wrote_.tag());
      next_.reset();
    }
    // Not ok: the client is gone, and Cancelled comes.
  }

  grpc::ByteBuffer request_;
  grpc::ServerAsyncWriter<grpc::ByteBuffer> writer_{&context()};
  MethodCompletion<WatchCall> wrote_{this, &WatchCall::Wrote};

  Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Health> next_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

void OfferHealthCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 8;
  for (int i = 0; i < kOffered; ++i) {
    new CheckCall(environment, queue);
    new WatchCall(environment, queue);
  }
}

}  // namespace gemmd
