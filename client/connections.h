// The channels of one client, and where they lead.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gemmd/client.h"
#include "gemmd/tls.h"

namespace gemmd::client {

// A channel with a connection of its own.
struct Connection {
  explicit Connection(std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)), stub(channel) {}

  const std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  std::atomic<int> in_flight{0};      // a hint for choosing, orders nothing
  std::atomic<bool> answered{false};  // once; a hint for the words of errors
};

// Thread-safety: const methods may be called from any thread at once.
class Connections {
 public:
  // Needs: CheckOptions(options) is OK. Connects to nothing yet.
  explicit Connections(const ClientOptions& options);

  // The one with the fewest calls in flight. Count a call there in and out.
  Connection* Choose() const;

  // The i-th of size().
  Connection* at(int i) const { return connections_[i].get(); }

  const std::string& address() const { return address_; }
  int size() const { return static_cast<int>(connections_.size()); }

  // `status`, with the words a user needs where gRPC's own are poor: no server
  // there or none that is trusted, a connection lost, no answer in time.
  absl::Status Explain(const absl::Status& status, const Connection& used,
                       absl::Duration timeout) const;

 private:
  // Why no connection came about, in the words of gRPC and of ours.
  std::string NotConnected(absl::string_view message) const;
  // Likewise of one that the other side ended.
  std::string Closed(absl::string_view message) const;

  const std::string address_;
  const std::optional<TlsOptions> tls_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace gemmd::client
