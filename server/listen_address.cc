#include "server/listen_address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace gemmd {

bool ListenAddress::loopback() const {
  // A name such as 127.example.com may lead anywhere.
  const bool dotted =
      host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" ||
         (dotted && absl::StartsWith(host, "127."));
}

std::string ListenAddress::WithPort(int other) const {
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", other)
                                      : absl::StrCat(host, ":", other);
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  const auto error = [text](absl::string_view problem) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" ", problem,
                     "; want HOST:PORT, as 127.0.0.1:50051 or [::1]:0"));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return error("has no port");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  const bool bracketed =
      absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  if (!bracketed && host.find_first_of("[]:") != absl::string_view::npos) {
    return error("has an IPv6 address that is not in brackets");
  }
  if (host.empty()) return error("has no host");
  ListenAddress address{.host = std::string(host)};
  if (port_text.empty() || port_text.size() > 5 ||
      port_text.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(port_text, &address.port) || address.port > 65535) {
    return error("has a port that is not a number from 0 to 65535");
  }
  return address;
}

}  // namespace gemmd
