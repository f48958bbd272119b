// A call of one request and one answer, both raw.

#pragma once

#include <grpcpp/support/async_unary_call.h>
#include <grpcpp/support/byte_buffer.h>

#include "server/rpc/call.h"

namespace gemmd {

class UnaryCall : public Call {
 protected:
  using Call::Call;

  // Ends the call; one of them, once, as the last thing that is done with it.
  void Answer(const grpc::ByteBuffer& answer);
  void Fail(const absl::Status& status);

  size_t RequestBytes() const override { return request_.Length(); }

  grpc::ByteBuffer& request() { return request_; }
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>* responder() {
    return &responder_;
  }

 private:
  grpc::ByteBuffer request_;
  grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> responder_{&context()};
};

}  // namespace gemmd
