// The least that a gRPC server can do with messages of a size: take bytes in,
// send bytes out. What gemmd's transport is measured against.
//
//   gemmd_echo_server LISTEN [QUEUES]       (HOST:PORT or unix:PATH; 1)
//
// Any method is answered with as many bytes as the metadata `echo-bytes` asks
// for, out of one buffer that is never copied. Completion-queue API, a thread a
// queue; one queue is the fastest on two cores (server/rpc/README.md). Says
// "echo listening" when it is, and runs until it is killed.

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "server/rpc/completion_loop.h"
#include "server/rpc/malloc_settings.h"

namespace gemmd {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;

class EchoCall {
 public:
  EchoCall(grpc::AsyncGenericService* service,
           grpc::ServerCompletionQueue* queue, const grpc::Slice* buffer)
      : service_(service), queue_(queue), buffer_(buffer) {
    service_->RequestCall(&context_, &stream_, queue_, queue_, arrived_.tag());
  }

 private:
  void Arrived(bool ok) {
    if (!ok) {
      delete this;
      return;
    }
    new EchoCall(service_, queue_, buffer_);
    stream_.Read(&request_, read_.tag());
  }

  void Read(bool ok) {
    size_t bytes = 0;
    const auto asked = context_.client_metadata().find("echo-bytes");
    if (asked != context_.client_metadata().end()) {
      const std::string text(asked->second.data(), asked->second.size());
      bytes =
          std::min<size_t>(std::strtoull(text.c_str(), nullptr, 10), kMaxBytes);
    }
    request_.Clear();
    grpc::Slice answer = buffer_->sub(0, bytes);
    stream_.WriteAndFinish(grpc::ByteBuffer(&answer, 1), grpc::WriteOptions(),
                           grpc::Status::OK, finished_.tag());
  }

  void Finished(bool ok) { delete this; }

  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  const grpc::Slice* const buffer_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer request_;
  MethodCompletion<EchoCall> arrived_{this, &EchoCall::Arrived};
  MethodCompletion<EchoCall> read_{this, &EchoCall::Read};
  MethodCompletion<EchoCall> finished_{this, &EchoCall::Finished};
};

int Main(const std::string& listen, int queues) {
  ConfigureMalloc();
  grpc::AsyncGenericService service;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  builder.RegisterAsyncGenericService(&service);
  std::vector<std::unique_ptr<CompletionLoop>> loops;
  for (int i = 0; i < queues; ++i) {
    loops.push_back(
        std::make_unique<CompletionLoop>(builder.AddCompletionQueue()));
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "cannot listen on %s\n", listen.c_str());
    return 1;
  }
  const std::vector<uint8_t> zeros(kMaxBytes, 1);
  const grpc::Slice buffer(zeros.data(), zeros.size(),
                           grpc::Slice::STATIC_SLICE);
  for (const auto& loop : loops) {
    for (int i = 0; i < 64; ++i) new EchoCall(&service, loop->queue(), &buffer);
    loop->Start();
  }
  std::printf("echo listening on %s\n", listen.c_str());
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  const int queues = argc == 3 ? std::atoi(argv[2]) : 1;
  if (argc < 2 || argc > 3 || queues < 1) {
    std::fprintf(stderr,
                 "usage: gemmd_echo_server HOST:PORT|unix:PATH [QUEUES]\n");
    return 2;
  }
  return gemmd::Main(argv[1], queues);
}
