#include "server/rpc/unimplemented_calls.h"

#include <grpcpp/support/async_stream.h>

#include "server/rpc/unary_call.h"

namespace gemmd {
namespace {

using grpc::ByteBuffer;

absl::Status NoMatrices() {
  return absl::UnimplementedError(
      "this server keeps no resident matrices; send operands inline");
}

class StreamCall final : public Call {
 public:
  StreamCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kSgemmStream) {
    environment->gemm_service.RequestSgemmStream(&context(), &stream_, queue,
                                                 queue, arrival_tag());
  }

 private:
  void Renew() override { new StreamCall(&environment(), queue()); }
  void Begin() override {
    stream_.Finish(End(absl::UnimplementedError(
                       "this server does not stream products; call Sgemm")),
                   finish_tag());
  }

  grpc::ServerAsyncReaderWriter<ByteBuffer, ByteBuffer> stream_{&context()};
};

class UploadCall final : public Call {
 public:
  UploadCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kUploadMatrix) {
    environment->gemm_service.RequestUploadMatrix(&context(), &reader_, queue,
                                                  queue, arrival_tag());
  }

 private:
  void Renew() override { new UploadCall(&environment(), queue()); }
  void Begin() override {
    reader_.FinishWithError(End(NoMatrices()), finish_tag());
  }

  grpc::ServerAsyncReader<ByteBuffer, ByteBuffer> reader_{&context()};
};

class DownloadCall final : public Call {
 public:
  DownloadCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : Call(environment, queue, Method::kDownloadMatrix) {
    environment->gemm_service.RequestDownloadMatrix(
        &context(), &request_, &writer_, queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new DownloadCall(&environment(), queue()); }
  void Begin() override { writer_.Finish(End(NoMatrices()), finish_tag()); }

  ByteBuffer request_;
  grpc::ServerAsyncWriter<ByteBuffer> writer_{&context()};
};

class ListCall final : public UnaryCall {
 public:
  ListCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : UnaryCall(environment, queue, Method::kListMatrices) {
    environment->gemm_service.RequestListMatrices(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new ListCall(&environment(), queue()); }
  void Begin() override { Fail(NoMatrices()); }
};

class DeleteCall final : public UnaryCall {
 public:
  DeleteCall(CallEnvironment* environment, grpc::ServerCompletionQueue* queue)
      : UnaryCall(environment, queue, Method::kDeleteMatrix) {
    environment->gemm_service.RequestDeleteMatrix(
        &context(), &request(), responder(), queue, queue, arrival_tag());
  }

 private:
  void Renew() override { new DeleteCall(&environment(), queue()); }
  void Begin() override { Fail(NoMatrices()); }
};

}  // namespace

void OfferUnimplementedCalls(CallEnvironment* environment,
                             grpc::ServerCompletionQueue* queue) {
  new StreamCall(environment, queue);
  new UploadCall(environment, queue);
  new DownloadCall(environment, queue);
  new ListCall(environment, queue);
  new DeleteCall(environment, queue);
}

}  // namespace gemmd
