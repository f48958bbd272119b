// What the calls of one client have in common.

#pragma once

#include <google/protobuf/message_lite.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/background.h"
#include "client/call.h"
#include "client/call_queue.h"
#include "client/connections.h"
#include "client/identity.h"
#include "client/operation.h"
#include "client/product_stream.h"
#include "client/shared_blocks.h"
#include "gemmd/client.h"

namespace gemmd::client {

// 128 random bits in 32 hex digits: a client, a matrix, an accumulation.
std::string NewId();

// Thread-safe. Owned by a Client; a ResidentMatrix looks whether it is still
// there.
class Session : public std::enable_shared_from_this<Session> {
 public:
  // Needs: CheckOptions(options) is OK.
  explicit Session(const ClientOptions& options);

  // Cancels asynchronous operations and waits for their end, and for that of
  // DropMatrix. Once, by the owner; nothing but DropMatrix may come after it.
  void End();

  const ClientOptions& options() const { return options_; }
  const Identity& identity() const { return identity_; }
  const Connections& connections() const { return connections_; }
  SharedBlocks& shared() { return shared_; }

  // One of the threads that drive asynchronous calls; there are as many as
  // connections. The one with the fewest calls; from a callback its own, where
  // none has fewer, so that one call at a time always has the same thread,
  // which a busy_poll keeps awake.
  CallQueue& queue();
  // Likewise for small products; null unless the options ask for streams.
  ProductStream* stream();
  Background& background() { return *background_; }

  // Around an asynchronous operation, callback included.
  void Enter(std::shared_ptr<Operation> operation);
  void Leave(const std::shared_ptr<Operation>& operation);

  // The parts that are the same in all unary calls.
  Call::Parts CallParts(const char* method, Operation* operation) const;

  // A unary call of small messages, to its end.
  absl::Status CallAndWait(const char* method,
                           const google::protobuf::MessageLite& request,
                           google::protobuf::MessageLite* response,
                           Operation* operation) const;

  // The server's limits, asked for once.
  absl::StatusOr<ServerInfo::Limits> Limits(Operation* operation);
  std::optional<ServerInfo::Limits> KnownLimits() const;

  // Tells the server to drop a matrix, without waiting.
  void DropMatrix(const std::string& id);

 private:
  const ClientOptions options_;
  const Identity identity_;
  const Connections connections_;
  SharedBlocks shared_;

  mutable std::mutex mu_;
  std::condition_variable all_left_;
  std::optional<ServerInfo::Limits> limits_;                // guarded by mu_
  bool ended_ = false;                                      // guarded by mu_
  std::unordered_set<std::shared_ptr<Operation>> running_;  // guarded by mu_

  // Until End.
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::vector<std::unique_ptr<ProductStream>> streams_;
  std::atomic<size_t> next_queue_ = 0;  // a counter, orders nothing
  std::optional<Background> background_;
};

// Runs `attempt` until it is OK, is not worth another try (RetryPolicy), or the
// operation is over.
absl::Status WithRetries(const RetryPolicy& policy, Operation* operation,
                         absl::FunctionRef<absl::Status()> attempt);

// The message as bytes, and back: INTERNAL if it is none.
grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message);
absl::Status Parse(grpc::ByteBuffer bytes,
                   google::protobuf::MessageLite* message);

}  // namespace gemmd::client
