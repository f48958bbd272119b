// The channels of one client, and where they lead.

#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/tls_rotation.h"
#include "gemmd/client.h"

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

// New calls go over connections that were made with what the TLS files hold, as
// far as all of it fits together (TlsRotation); where that has changed, calls
// that had begun end on the connections of before.
//
// Thread-safe.
class Connections {
 public:
  // Needs: CheckOptions(options) is OK. Connects to nothing yet.
  explicit Connections(const ClientOptions& options);

  // The one with the fewest calls in flight. Count a call there in and out.
  std::shared_ptr<Connection> Choose() const;

  // The i-th of size().
  std::shared_ptr<Connection> at(int i) const { return (*Current())[i]; }

  const std::string& address() const { return options_.address; }
  int size() const { return size_; }

  // `status`, with the words a user needs where gRPC's own are poor: no server
  // there or none that is trusted, a connection lost, no answer in time.
  absl::Status Explain(const absl::Status& status, const Connection& used,
                       absl::Duration timeout) const;

 private:
  using List = std::vector<std::shared_ptr<Connection>>;

  // The connections for new calls.
  std::shared_ptr<const List> Current() const;
  std::shared_ptr<const List> NewList(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials) const;

  // Why no connection came about, in the words of gRPC and of ours.
  std::string NotConnected(absl::string_view message) const;
  // Likewise of one that the other side ended.
  std::string Closed(absl::string_view message) const;
  std::string TlsProblem() const;

  const ClientOptions options_;
  const int size_;

  mutable std::mutex mu_;
  mutable std::optional<TlsRotation> tls_;    // guarded by mu_; or plaintext
  mutable std::shared_ptr<const List> list_;  // guarded by mu_
};

}  // namespace gemmd::client
