#include "client/session.h"

#include <grpcpp/impl/codegen/proto_buffer_reader.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/retry.h"
#include "client/server_info_wire.h"
#include "gemmd/v1/matrix.pb.h"
#include "gemmd/v1/server_info.pb.h"

namespace gemmd::client {
namespace {

// What the end of a program waits at most for the answer to a drop.
constexpr absl::Duration kDropTimeout = absl::Seconds(1);

}  // namespace

std::string NewId() {
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

absl::Status Parse(grpc::ByteBuffer bytes,
                   google::protobuf::MessageLite* message) {
  grpc::ProtoBufferReader reader(&bytes);
  if (message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  return absl::InternalError("the server's answer is malformed");
}

Session::Session(const ClientOptions& options)
    : options_(options),
      identity_(options, options.id.empty() ? NewId() : options.id),
      connections_(options) {
  for (int i = 0; i < connections_.size(); ++i) {
    queues_.push_back(std::make_unique<CallQueue>(options.busy_poll));
    if (options.stream_small_products) {
      streams_.push_back(
          std::make_unique<ProductStream>(&connections_, i, &identity_));
    }
  }
  background_.emplace();
}

void Session::End() {
  {
    std::unique_lock<std::mutex> lock(mu_);
    for (const auto& operation : running_) operation->Cancel();
    all_left_.wait(lock, [this] { return running_.empty(); });
    ended_ = true;
  }
  background_.reset();
  streams_.clear();
  queues_.clear();
}

CallQueue& Session::queue() {
  const auto fewest = std::min_element(
      queues_.begin(), queues_.end(), [](const auto& x, const auto& y) {
        return x->in_progress() < y->in_progress();
      });
  // Of a callback's queue the call that is being delivered does not count.
  CallQueue* const own = CallQueue::Delivering();
  const bool is_ours =
      std::any_of(queues_.begin(), queues_.end(),
                  [own](const auto& x) { return x.get() == own; });
  const bool stays =
      is_ours && own->in_progress() - 1 <= (*fewest)->in_progress();
  return stays ? *own : **fewest;
}

ProductStream* Session::stream() {
  if (streams_.empty()) return nullptr;
  const size_t turn = next_queue_.fetch_add(1, std::memory_order_relaxed);
  return streams_[turn % streams_.size()].get();
}

void Session::Enter(std::shared_ptr<Operation> operation) {
  std::lock_guard<std::mutex> lock(mu_);
  running_.insert(std::move(operation));
}

void Session::Leave(const std::shared_ptr<Operation>& operation) {
  std::lock_guard<std::mutex> lock(mu_);
  running_.erase(operation);
  if (running_.empty()) all_left_.notify_all();
}

Call::Parts Session::CallParts(const char* method, Operation* operation) const {
  return {.connections = &connections_,
          .identity = &identity_,
          .operation = operation,
          .retry = options_.retry,
          .method = method};
}

absl::Status Session::CallAndWait(const char* method,
                                  const google::protobuf::MessageLite& request,
                                  google::protobuf::MessageLite* response,
                                  Operation* operation) const {
  Call::Parts parts = CallParts(method, operation);
  parts.request = Serialize(request);
  absl::Status status;
  parts.done = [&](absl::StatusOr<grpc::ByteBuffer> result, int) {
    status =
        result.ok() ? Parse(*std::move(result), response) : result.status();
  };
  Call call(std::move(parts));
  RunCall(&call, options_.busy_poll);
  return status;
}

absl::StatusOr<ServerInfo::Limits> Session::Limits(Operation* operation) {
  if (const auto known = KnownLimits(); known.has_value()) return *known;
  v1::GetServerInfoResponse response;
  absl::Status status =
      CallAndWait("/gemmd.v1.GemmService/GetServerInfo",
                  v1::GetServerInfoRequest(), &response, operation);
  if (!status.ok()) return status;
  std::lock_guard<std::mutex> lock(mu_);
  limits_ = FromProto(response).limits;
  return *limits_;
}

std::optional<ServerInfo::Limits> Session::KnownLimits() const {
  std::lock_guard<std::mutex> lock(mu_);
  return limits_;
}

void Session::DropMatrix(const std::string& id) {
  std::lock_guard<std::mutex> lock(mu_);
  if (ended_) return;
  auto operation = std::make_shared<Operation>(kDropTimeout);
  Call::Parts parts =
      CallParts("/gemmd.v1.GemmService/DeleteMatrix", operation.get());
  parts.retry.max_attempts = 1;
  v1::DeleteMatrixRequest request;
  request.set_matrix_id(id);
  parts.request = Serialize(request);
  parts.done = [operation](absl::StatusOr<grpc::ByteBuffer>, int) {};
  queue().Begin(std::make_shared<Call>(std::move(parts)));
}

absl::Status WithRetries(const RetryPolicy& policy, Operation* operation,
                         absl::FunctionRef<absl::Status()> attempt) {
  absl::BitGen random;
  for (int attempts = 1;; ++attempts) {
    absl::Status status = attempt();
    const std::optional<absl::Duration> delay =
        NextRetryDelay(policy, status, attempts, operation->remaining(),
                       absl::Uniform(random, 0.0, 1.0));
    if (operation->cancelled() && !status.ok()) {
      return absl::CancelledError("cancelled by the caller");
    }
    if (status.ok() || !delay.has_value()) return status;
    operation->SleepFor(*delay);
  }
}

}  // namespace gemmd::client
