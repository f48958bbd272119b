// The sockets of a gRPC server, which gRPC does not give out: they are found in
// /proc/self/fd by the address that they are bound to. Where there is no /proc
// none are found.
//
// A descriptor that is found may be closed, and its number taken anew, at any
// moment: gRPC owns it.

#pragma once

#include <string>
#include <vector>

namespace gemmd {

struct ServerAddress {
  int port = 0;             // TCP; 0: none
  std::string unix_socket;  // a path; empty: none
};

// Those that wait for connections, and the connections.
std::vector<int> FindListeners(const ServerAddress& address);
std::vector<int> FindConnections(const ServerAddress& address);

// Bytes that were sent and that the peer's machine (a unix socket: the peer)
// does not have yet.
int BytesOnTheirWay(int fd);

}  // namespace gemmd
