// A call of one request and one answer, both raw, whose request may be long on
// its way.
//
// gRPC hands a UnaryCall over when its request is whole, and until then no code
// of ours knows of it: a drain would cut it off. This one is known from its
// first header on. To gRPC's server it is a stream of one message each way; on
// the wire that is the same.

#pragma once

#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "server/rpc/call.h"

namespace gemmd {

class ReceivedCall : public Call {
 protected:
  using Call::Call;

  // The call has begun and its request is on the way: says whether to take it.
  // Not OK is the call's end, and none of the other two follows.
  virtual absl::Status Accept() = 0;

  // Exactly one of them, later: the request is there; or it will not come,
  // since the client or its connection is gone or it sent none. Both must end
  // the call. On the polling thread.
  virtual void Received() = 0;
  virtual void NotReceived(const absl::Status& why) = 0;

  // Ends the call; one of them, once, as the last thing that is done with it.
  void Answer(const grpc::ByteBuffer& answer);
  void Fail(const absl::Status& status);

  grpc::ByteBuffer& request() { return request_; }
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>* stream() {
    return &stream_;
  }

 private:
  void Begin() final;
  void Read(bool ok);

  grpc::ByteBuffer request_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> stream_{
      &context()};
  MethodCompletion<ReceivedCall> read_{this, &ReceivedCall::Read};
};

}  // namespace gemmd
