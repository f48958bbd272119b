// The end of a server's connections, before gRPC's own.

#pragma once

#include "server/monotonic_time.h"
#include "server/rpc/own_sockets.h"

namespace gemmd {

// Takes no more connections at `address` and ends those that are there: the
// clients read what has been sent to them and then the end of the connection.
// Returns when all are closed, or when they have been idle for a moment and
// nothing is on its way any more, or at `deadline`; what is left then is cut
// off.
//
// Why: grpc::Server::Shutdown (1.51) first lets go of the calls that the server
// offers and then tells the clients. A call that arrives in between is ended
// with a bare CANCELLED, which no client retries, although nobody has looked at
// it. Of a call that arrives now, the client's gRPC says UNAVAILABLE.
void EndConnections(const ServerAddress& address, MonotonicTime deadline);

}  // namespace gemmd
