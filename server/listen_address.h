// "HOST:PORT", as the flags that open ports take it.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

struct ListenAddress {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;      // 0 picks a free one

  // Reachable from this machine alone.
  bool loopback() const;
  // Every address of this machine.
  bool any() const { return host == "0.0.0.0" || host == "::"; }
  // With another port: "127.0.0.1:8080", "[::1]:8080".
  std::string WithPort(int other) const;
};

// "127.0.0.1:50051", "localhost:0", "[::1]:50051", "0.0.0.0:50051".
// INVALID_ARGUMENT saying what was got and wanted.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

}  // namespace gemmd
