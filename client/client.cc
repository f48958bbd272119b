#include "gemmd/client.h"

#include <grpcpp/impl/codegen/proto_buffer_reader.h>

#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/call.h"
#include "client/call_queue.h"
#include "client/connections.h"
#include "client/server_info_wire.h"
#include "client/sgemm_wire.h"
#include "gemmd/v1/server_info.pb.h"
#include "grpc/health/v1/health.pb.h"

namespace gemmd {
namespace {

using client::Call;
using client::ProductSize;

// 128 bits, so that no two clients ever share quotas or matrices.
std::string NewClientId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  }
  return id;
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status Parse(absl::StatusOr<grpc::ByteBuffer> bytes,
                   google::protobuf::MessageLite* message) {
  if (!bytes.ok()) return bytes.status();
  grpc::ProtoBufferReader reader(&*bytes);
  if (message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InternalError("the server's answer is malformed");
}

// The caller's matrix or the answer's own.
MutableMatrixView Destination(const SgemmCall& call, const ProductSize& size,
                              SgemmAnswer* answer) {
  if (call.output.data != nullptr) return call.output;
  answer->c = Matrix(size.m, size.n);
  return answer->c.mutable_view();
}

}  // namespace

class Client::Impl {
 public:
  using SgemmDone = absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)>;

  explicit Impl(const ClientOptions& options)
      : options_(options), id_(NewClientId()), connections_(options) {}

  const std::string& id() const { return id_; }
  client::CallQueue& queue() { return queue_; }

  // What is common to all calls.
  Call::Parts CallParts(const char* method, absl::Duration timeout) const {
    return {.connections = &connections_,
            .retry = options_.retry,
            .client_id = id_,
            .method = method,
            .timeout = timeout};
  }

  Call::Parts SgemmParts(const SgemmCall& call, SgemmDone done) const;

  // A call of small messages, to its end.
  absl::Status CallAndWait(const char* method,
                           const google::protobuf::MessageLite& request,
                           google::protobuf::MessageLite* response) const;

 private:
  const ClientOptions options_;
  const std::string id_;
  const client::Connections connections_;
  client::CallQueue queue_;  // goes first: its calls use the rest
};

Call::Parts Client::Impl::SgemmParts(const SgemmCall& call,
                                     SgemmDone done) const {
  const absl::Time begin = absl::Now();
  Call::Parts parts = CallParts("/gemmd.v1.GemmService/Sgemm",
                                call.timeout.value_or(options_.timeout));
  const absl::StatusOr<ProductSize> size = client::CheckCall(call);
  if (!size.ok()) {
    parts.refused = size.status();
    parts.done = [done = std::move(done)](
                     absl::StatusOr<grpc::ByteBuffer> result, int) mutable {
      done(result.status());
    };
    return parts;
  }
  parts.request = client::EncodeSgemm(call, *size, &parts.lent);
  parts.done = [call, size = *size, begin, done = std::move(done)](
                   absl::StatusOr<grpc::ByteBuffer> result,
                   int attempts) mutable {
    if (!result.ok()) return done(result.status());
    SgemmAnswer answer;
    const MutableMatrixView c = Destination(call, size, &answer);
    absl::Status status =
        client::DecodeSgemm(&*result, size, c, &answer.execution);
    if (!status.ok()) return done(std::move(status));
    answer.attempts = attempts;
    answer.elapsed = absl::Now() - begin;
    done(std::move(answer));
  };
  return parts;
}

absl::Status Client::Impl::CallAndWait(
    const char* method, const google::protobuf::MessageLite& request,
    google::protobuf::MessageLite* response) const {
  Call::Parts parts = CallParts(method, options_.timeout);
  parts.request = Serialize(request);
  absl::Status status;
  parts.done = [&](absl::StatusOr<grpc::ByteBuffer> result, int) {
    status = Parse(std::move(result), response);
  };
  Call call(std::move(parts));
  client::RunCall(&call);
  return status;
}

SgemmHandle::SgemmHandle(std::shared_ptr<client::Call> call)
    : call_(std::move(call)) {}

void SgemmHandle::Cancel() { call_->Cancel(); }

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Create(
    const ClientOptions& options) {
  absl::Status status = client::CheckOptions(options);
  if (!status.ok()) return status;
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(options)));
}

absl::StatusOr<SgemmAnswer> Client::Sgemm(const SgemmCall& call) {
  absl::StatusOr<SgemmAnswer> answer;
  Call running(impl_->SgemmParts(call, [&](absl::StatusOr<SgemmAnswer> result) {
    answer = std::move(result);
  }));
  client::RunCall(&running);
  return answer;
}

SgemmHandle Client::SgemmAsync(
    const SgemmCall& call,
    absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)> done) {
  auto running =
      std::make_shared<Call>(impl_->SgemmParts(call, std::move(done)));
  impl_->queue().Begin(running);
  return SgemmHandle(std::move(running));
}

absl::StatusOr<ServerInfo> Client::GetServerInfo() {
  v1::GetServerInfoResponse response;
  absl::Status status =
      impl_->CallAndWait("/gemmd.v1.GemmService/GetServerInfo",
                         v1::GetServerInfoRequest(), &response);
  if (!status.ok()) return status;
  return client::FromProto(response);
}

absl::StatusOr<ServerHealth> Client::Health(const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  absl::Status status =
      impl_->CallAndWait("/grpc.health.v1.Health/Check", request, &response);
  if (!status.ok()) return status;
  switch (response.status()) {
    case grpc::health::v1::HealthCheckResponse::SERVING:
      return ServerHealth::kServing;
    case grpc::health::v1::HealthCheckResponse::NOT_SERVING:
      return ServerHealth::kNotServing;
    default:
      return ServerHealth::kUnknown;
  }
}

const std::string& Client::id() const { return impl_->id(); }

}  // namespace gemmd
