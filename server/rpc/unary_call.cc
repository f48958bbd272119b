#include "server/rpc/unary_call.h"

namespace gemmd {

void UnaryCall::Answer(const grpc::ByteBuffer& answer) {
  responder_.Finish(answer, End(absl::OkStatus(), answer.Length()),
                    finish_tag());
}

void UnaryCall::Fail(const absl::Status& status) {
  responder_.FinishWithError(End(status), finish_tag());
}

}  // namespace gemmd
