// gRPC's own log lines, in the format of ours.

#pragma once

#include <functional>

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

// Calls `lost` when gRPC gives up a listening port for ever, as its
// version 1.51 does when a connection cannot be accepted for want of file
// descriptors; it says so in its log alone. All watches of a process are told:
// whose port it was is not said.
//
// `lost` is called on a thread of gRPC's that holds its locks: it must not call
// gRPC.
class PortWatch {
 public:
  explicit PortWatch(std::function<void()> lost);
  ~PortWatch();
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

  static void TellAll();

 private:
  const std::function<void()> lost_;
};

}  // namespace gemmd
