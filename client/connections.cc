#include "client/connections.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <climits>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "client/channel_credentials.h"
#include "client/options_check.h"

namespace gemmd::client {
namespace {

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

std::shared_ptr<grpc::Channel> NewChannel(
    const ClientOptions& options,
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  // A socket of its own, not one shared with every channel to this address.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Sizes are the server's to judge; gRPC's 4 MiB would lose the answer.
  arguments.SetMaxReceiveMessageSize(INT_MAX);
  arguments.SetMaxSendMessageSize(INT_MAX);
  // Else the environment's http_proxy would get what is for this host.
  if (IsLocal(options.address)) {
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  }
  // Retries are ours (retry.h); gRPC's would keep copies of the slices.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // What GRPC calls the minimum backoff is how long a connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // A rolling update ends servers seconds apart: with gRPC's 30 s the second
  // one would leave this client with the names of those that are gone.
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 100);
  // Asks after a silent server while calls wait (seldom: servers take frequent
  // pings for abuse), and with that gives TCP the time after which unread data
  // breaks the connection.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 310'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetUserAgentPrefix("gemmd-client");
  if (options.tls.has_value() && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  return grpc::CreateCustomChannel(options.address, credentials, arguments);
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

Connections::Connections(const ClientOptions& options)
    : options_(options), size_(ConnectionCount(options)) {
  if (options.tls.has_value()) {
    tls_.emplace(*options.tls);
  } else {
    list_ = NewList(grpc::InsecureChannelCredentials());
  }
}

std::shared_ptr<const Connections::List> Connections::NewList(
    const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
  auto list = std::make_shared<List>();
  for (int i = 0; i < size_; ++i) {
    list->push_back(
        std::make_shared<Connection>(NewChannel(options_, credentials)));
  }
  return list;
}

std::shared_ptr<const Connections::List> Connections::Current() const {
  std::lock_guard<std::mutex> lock(mu_);
  if (tls_.has_value()) {
    if (tls_->Look(TlsRotation::Clock::now(), absl::Now())) {
      list_ = NewList(NewTlsCredentials(tls_->current()));
    } else if (list_ == nullptr) {
      // Files that went bad since they were checked: without credentials gRPC's
      // channels only fail.
      list_ = NewList(nullptr);
    }
  }
  return list_;
}

std::shared_ptr<Connection> Connections::Choose() const {
  const std::shared_ptr<const List> list = Current();
  const std::shared_ptr<Connection>* chosen = &list->front();
  int fewest = (*chosen)->in_flight.load(std::memory_order_relaxed);
  for (const auto& connection : *list) {
    const int in_flight = connection->in_flight.load(std::memory_order_relaxed);
    if (in_flight < fewest) {
      chosen = &connection;
      fewest = in_flight;
    }
  }
  return *chosen;
}

std::string Connections::TlsProblem() const {
  std::lock_guard<std::mutex> lock(mu_);
  if (!tls_.has_value() || tls_->problem().empty()) return "";
  return absl::StrCat(" (the client's files cannot be used as they are now: ",
                      tls_->problem(), ")");
}

std::string Connections::NotConnected(absl::string_view message) const {
  const auto says = [message](absl::string_view words) {
    return absl::StrContains(message, words);
  };
  if (options_.tls.has_value() && says("certificate verify failed")) {
    return absl::StrCat(
        "the server at ", address(), " is not trusted: its certificate is not ",
        options_.tls->root_certificates.empty()
            ? "of a root that the system trusts"
            : absl::StrCat("of the roots in ", options_.tls->root_certificates),
        ", or has expired");
  }
  if (says("Hostname Verification Check failed")) {
    return absl::StrCat("the certificate of the server at ", address(),
                        " is made out to another name; say to which "
                        "(server_name), if it is the right one");
  }
  if (says("wrong version number")) {
    return absl::StrCat(address(), " does not speak TLS");
  }
  if (says("Socket closed") || says("Connection reset") ||
      says("parsing HTTP/2")) {
    return Closed(message);
  }
  return absl::StrCat(
      "no server at ", address(), " (", Cause(message),
      "): check that gemmd runs and prints \"grpc listening on\" with this "
      "address");
}

// A server that stops and one that wants another kind of client end their
// connections with the same words; but one that has ever answered took us.
std::string Connections::Closed(absl::string_view message) const {
  const std::shared_ptr<const List> list = Current();
  const bool answered =
      std::any_of(list->begin(), list->end(), [](const auto& c) {
        return c->answered.load(std::memory_order_relaxed);
      });
  if (answered) {
    return absl::StrCat("the server at ", address(), " ended the connection (",
                        Cause(message), "), as one that stops or starts anew");
  }
  return absl::StrCat(
      address(), " ended the connection before it answered (", Cause(message),
      "): it stops or starts anew, or it wants ",
      options_.tls.has_value() ? "a client certificate of a root that it trusts"
                               : "TLS");
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
        absl::StrCat("no answer from ", address(), " within ",
                     absl::FormatDuration(timeout)));
  }
  if (!absl::IsUnavailable(status)) return status;
  switch (used.channel->GetState(/*try_to_connect=*/false)) {
    case GRPC_CHANNEL_TRANSIENT_FAILURE:
    case GRPC_CHANNEL_CONNECTING:
      return absl::UnavailableError(
          absl::StrCat(NotConnected(status.message()), TlsProblem()));
    default:
      return absl::UnavailableError(absl::StrCat(
          address(), " is not available: ", Cause(status.message())));
  }
}

}  // namespace gemmd::client
