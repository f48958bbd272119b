// gRPC's own log lines, in the format of ours.

#pragma once

#include <functional>

#include "absl/strings/string_view.h"

namespace gemmd {

// Sends what gRPC logs through LogGrpc(): its errors as warnings, since a call
// that fails has its own line and a connection that fails is its client's, the
// rest as debug lines. For the whole process; calling it again changes nothing.
void RouteGrpcLog();

// While one is there, gRPC's errors are debug lines too.
class QuietGrpcLog {
 public:
  QuietGrpcLog();
  ~QuietGrpcLog();
  QuietGrpcLog(const QuietGrpcLog&) = delete;
  QuietGrpcLog& operator=(const QuietGrpcLog&) = delete;
};

// Calls `lost` with the reason when gRPC gives up a listening port for ever.
// Its version 1.51 does so at the first connection that it cannot accept,
// whatever the system's error is (no file descriptor, no memory, a firewall's
// word; but not for one that its client has given up), and says so in its log
// alone. All watches of a process are told: whose port it was is not said.
//
// `lost` is called on a thread of gRPC's that holds its locks: it must not call
// gRPC.
class PortWatch {
 public:
  using Lost = std::function<void(absl::string_view reason)>;

  explicit PortWatch(Lost lost);
  ~PortWatch();
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

  static void TellAll(absl::string_view reason);

 private:
  const Lost lost_;
};

}  // namespace gemmd
