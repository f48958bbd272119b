#include "server/rpc/received_call.h"

namespace gemmd {

void ReceivedCall::Begin() {
  if (absl::Status status = Accept(); !status.ok()) return Fail(status);
  stream_.Read(&request_, read_.tag());
}

void ReceivedCall::Read(bool ok) {
  if (!ok) {
    // If the client is gone, this reaches nobody and is not what is counted:
    // see Call::Finished.
    return NotReceived(absl::InvalidArgumentError("the call has no request"));
  }
  RequestIsThere(request_.Length());
  Received();
}

void ReceivedCall::Answer(const grpc::ByteBuffer& answer) {
  stream_.Finish(answer, End(absl::OkStatus(), answer.Length()), finish_tag());
}

void ReceivedCall::Fail(const absl::Status& status) {
  stream_.FinishWithError(End(status), finish_tag());
}

}  // namespace gemmd
