// gRPC's own log lines, in the format of ours.

#pragma once

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

}  // namespace gemmd
