#include "server/rpc/info_call.h"

#include "server/rpc/client_identity.h"
#include "server/rpc/raw_message.h"
#include "server/rpc/unary_call.h"

namespace gemmd {
namespace {

class InfoCall final : public UnaryCall {
 public:
  InfoCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : UnaryCall(environment, queue, Method::kGetServerInfo) {
    environment->gemm_service.RequestGetServerInfo(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new InfoCall(&environment(), queue()); }

  void Begin() override {
    absl::Status allowed = Admit(Role::kInfo).status();
    if (!allowed.ok()) return Fail(allowed);
    const auto message = FromRaw<v1::GetServerInfoRequest>(&request());
    if (!message.ok()) return Fail(message.status());
    const CallEnvironment& env = environment();
    const bool shares = env.regions != nullptr && IsLocal(context());
    Answer(grpc::ByteBuffer(shares ? &env.local_server_info : &env.server_info,
                            1));
  }
};

}  // namespace

void OfferInfoCalls(CallEnvironment* environment,
                    grpc::ServerCompletionQueue* queue) {
  constexpr int kOffered = 4;
  for (int i = 0; i < kOffered; ++i) new InfoCall(environment, queue);
}

}  // namespace gemmd
