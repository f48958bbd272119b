// gRPC's own log lines, in the format of ours.

#pragma once

namespace gemmd {

// Sends what gRPC logs through Log(): its errors as warnings, since a call that
// fails has its own line and a connection that fails is its client's, the rest
// as debug lines. For the whole process; calling it again changes nothing.
void RouteGrpcLog();

}  // namespace gemmd
