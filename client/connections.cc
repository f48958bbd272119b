#include "client/connections.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <climits>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace gemmd::client {
namespace {

// Of sockaddr_un, with its final zero.
constexpr size_t kMaxSocketPath = 107;
constexpr int kMaxConnections = 64;

constexpr absl::string_view kWantedAddress =
    "wanted is host:port (127.0.0.1:50051, [::1]:50051) or unix:/path";

absl::Status InvalidAddress(absl::string_view address, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the address \"", address, "\" ", why, "; ", kWantedAddress));
}

absl::Status CheckAddress(absl::string_view address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    if (path.empty()) return InvalidAddress(address, "has no path");
    if (path.size() <= kMaxSocketPath) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the socket's path has ", path.size(), " bytes, the system's limit is ",
        kMaxSocketPath, ": ", path));
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) {
    return InvalidAddress(address, "has no port");
  }
  const absl::string_view host = address.substr(0, colon);
  if (host.empty()) return InvalidAddress(address, "has no host");
  if (host.find_first_of("/ \t") != absl::string_view::npos) {
    return InvalidAddress(address, "is not an address");
  }
  if (host.find(':') != absl::string_view::npos && host.front() != '[') {
    return InvalidAddress(address, "is IPv6 without brackets");
  }
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return InvalidAddress(address, "has no port from 1 to 65535");
  }
  return absl::OkStatus();
}

bool IsClientId(absl::string_view id) {
  return id.size() == 32 &&
         id.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// One connection keeps about a core busy on either side, and the products need
// cores as well.
int ConnectionCount(const ClientOptions& options) {
  if (options.connections > 0) return options.connections;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 4),
                    1, 4);
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

std::shared_ptr<grpc::Channel> NewChannel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  // A socket of its own, not one shared with every channel to this address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Sizes are the server's to judge; gRPC's 4 MiB would lose the answer.
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  // Retries are ours (retry.h); gRPC's would keep copies of the slices.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // What GRPC calls the minimum backoff is how long a connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Asks after a silent server while calls wait (seldom: servers take frequent
  // pings for abuse), and with that gives TCP the time after which unread data
  // breaks the connection.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 310'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetUserAgentPrefix("gemmd-client");
  return grpc::CreateCustomChannel(
      options.address, grpc::InsecureChannelCredentials(), arguments);
}

// The part of gRPC's message that a person can use.
absl::string_view Cause(absl::string_view message) {
  for (absl::string_view before : {"remote host: ", "last error: "}) {
    const size_t at = message.find(before);
    if (at != absl::string_view::npos) {
      return message.substr(at + before.size());
    }
  }
  return message;
}

}  // namespace

absl::Status CheckOptions(const ClientOptions& options) {
  if (absl::Status status = CheckAddress(options.address); !status.ok()) {
    return status;
  }
  if (options.connections < 0 || options.connections > kMaxConnections) {
    return absl::InvalidArgumentError(absl::StrCat(
        "connections is ", options.connections, "; wanted is 1 to ",
        kMaxConnections, ", or 0 for what suits this machine"));
  }
  if (!options.id.empty() && !IsClientId(options.id)) {
    return absl::InvalidArgumentError(
        "id is not 32 hex digits; leave it empty for a random one");
  }
  if (!(options.verify_fraction >= 0 && options.verify_fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "verify_fraction is ", options.verify_fraction, "; wanted is 0 to 1"));
  }
  if (options.retry.max_attempts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("retry.max_attempts is ", options.retry.max_attempts,
                     "; wanted is 1 (no retry) or more"));
  }
  if (options.timeout <= absl::ZeroDuration() ||
      options.connect_timeout < absl::Milliseconds(1) ||
      options.connect_timeout > absl::Hours(1) ||
      options.retry.initial_backoff < absl::ZeroDuration() ||
      options.retry.max_backoff < options.retry.initial_backoff) {
    return absl::InvalidArgumentError(
        "timeout and backoffs are wanted above 0, max_backoff at least "
        "initial_backoff, connect_timeout from 1 ms to 1 h");
  }
  return absl::OkStatus();
}

Connections::Connections(const ClientOptions& options)
    : address_(options.address) {
  for (int i = 0; i < ConnectionCount(options); ++i) {
    connections_.push_back(std::make_unique<Connection>(NewChannel(options)));
  }
}

Connection* Connections::Choose() const {
  Connection* chosen = connections_.front().get();
  int fewest = chosen->in_flight.load(std::memory_order_relaxed);
  for (const auto& connection : connections_) {
    const int in_flight = connection->in_flight.load(std::memory_order_relaxed);
    if (in_flight < fewest) {
      chosen = connection.get();
      fewest = in_flight;
    }
  }
  return chosen;
}

absl::Status Connections::Explain(const absl::Status& status,
                                  const Connection& used,
                                  absl::Duration timeout) const {
  // What carries details comes from the server, which said it best.
  bool has_details = false;
  status.ForEachPayload(
      [&](absl::string_view, const absl::Cord&) { has_details = true; });
  if (has_details) return status;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer from ", address_, " within ",
                     absl::FormatDuration(timeout)));
  }
  if (!absl::IsUnavailable(status)) return status;
  switch (used.channel->GetState(/*try_to_connect=*/false)) {
    case GRPC_CHANNEL_TRANSIENT_FAILURE:
    case GRPC_CHANNEL_CONNECTING:
      return absl::UnavailableError(absl::StrCat(
          "no server at ", address_, " (", Cause(status.message()),
          "): check that gemmd runs and prints \"grpc listening on\" with this "
          "address"));
    default:
      return absl::UnavailableError(absl::StrCat(
          address_, " is not available: ", Cause(status.message())));
  }
}

}  // namespace gemmd::client
