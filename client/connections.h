// The channels of one client, and where they lead.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gemmd/client.h"

namespace gemmd::client {

// A channel with a connection of its own.
struct Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)), stub(channel) {}

  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  std::atomic<int> in_flight{0};  // a hint for choosing, orders nothing
};

// INVALID_ARGUMENT for an address or an option that cannot be.
absl::Status CheckOptions(const ClientOptions& options);

// Thread-safety: const methods may be called from any thread at once.
class Connections {
 public:
  // Needs: CheckOptions(options) is OK. Connects to nothing yet.
  explicit Connections(const ClientOptions& options);

  // The one with the fewest calls in flight. Count a call there in and out.
  Connection* Choose() const;

  const std::string& address() const { return address_; }
  int size() const { return static_cast<int>(connections_.size()); }

  // `status`, with the words a user needs where gRPC's own are poor: no server
  // there, a connection lost, no answer in time.
  absl::Status Explain(const absl::Status& status, const Connection& used,
                       absl::Duration timeout) const;

 private:
  const std::string address_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace gemmd::client
