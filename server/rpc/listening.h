// Where the server listens, and why it cannot.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace gemmd {

// OK where a unix socket can be made at `path`. UNAVAILABLE if somebody listens
// there: gRPC would take the path from under them without a word.
// INVALID_ARGUMENT for a path longer than a socket address holds, one where
// something else than a socket is, or a folder that is not there or not
// writable.
absl::Status CheckUnixSocketPath(const std::string& path);

// OK where HOST:PORT can be listened on now; else UNAVAILABLE with the
// operating system's reason. Asked before gRPC tries, which would only log why
// it failed.
absl::Status CheckTcpAddress(const std::string& address);

}  // namespace gemmd
