#include "client/options_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "client/tls_files.h"
#include "client/token_file.h"

namespace gemmd::client {
namespace {

// Of sockaddr_un, with its final zero.
constexpr size_t kMaxSocketPath = 107;
constexpr int kMaxConnections = 64;

constexpr absl::string_view kWantedAddress =
    "wanted is host:port (127.0.0.1:50051, [::1]:50051), unix:/path, or a "
    "name of gRPC's (dns:///host:port, ipv4:host:port,host:port)";

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
  for (const absl::string_view resolver : {"dns:", "ipv4:", "ipv6:"}) {
    if (absl::StartsWith(address, resolver)) return absl::OkStatus();
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

bool IsUnix(absl::string_view address) {
  return absl::StartsWith(address, "unix:");
}

// Of host:port, [host]:port or a host alone.
absl::string_view HostOf(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "[")) {
    const size_t end = address.find("]:");
    return end == absl::string_view::npos ? absl::StripSuffix(address, "]")
                                          : address.substr(0, end);
  }
  return address.substr(0, address.rfind(':'));
}

bool IsLoopback(absl::string_view host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) ||
         (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET);
}

absl::Status CheckAccess(const ClientOptions& options) {
  if (options.tls.has_value()) {
    if (IsUnix(options.address)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "TLS is not for the unix socket ", options.address,
          ", which is plaintext and guarded by its folder; leave TLS out"));
    }
    absl::Status status = ReadTlsFiles(*options.tls, absl::Now()).status();
    if (!status.ok()) return status;
  }
  const bool from_file = !options.token_file.empty();
  if (options.token.empty() && !from_file) return absl::OkStatus();
  if (!options.token.empty() && from_file) {
    return absl::InvalidArgumentError(
        "token and token_file are both given; give one of them");
  }
  if (!options.tls.has_value() && !IsLocal(options.address) &&
      !options.allow_plaintext_token) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a token would go to ", options.address,
        " in plaintext, for everybody on the way to read; use TLS, or allow it "
        "(allow_plaintext_token) where the network is trusted"));
  }
  return from_file ? TokenFile(options.token_file).Read()
                   : CheckToken(options.token);
}

}  // namespace

bool IsLocal(absl::string_view address) {
  if (IsUnix(address)) return true;
  for (const absl::string_view resolver : {"dns:", "ipv4:", "ipv6:"}) {
    if (!absl::ConsumePrefix(&address, resolver)) continue;
    // A DNS server that is named could say anything of localhost.
    if (absl::ConsumePrefix(&address, "//") &&
        !absl::ConsumePrefix(&address, "/")) {
      return false;
    }
    break;
  }
  for (const absl::string_view one : absl::StrSplit(address, ',')) {
    if (!IsLoopback(HostOf(one))) return false;
  }
  return true;
}

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
  if (options.busy_poll < absl::ZeroDuration() ||
      options.busy_poll > absl::Seconds(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("busy_poll is ", absl::FormatDuration(options.busy_poll),
                     "; wanted is 0 to 1 s"));
  }
  return CheckAccess(options);
}

}  // namespace gemmd::client
