// A plain HTTP/1.1 exchange over a socket, for tests of the HTTP port.

#pragma once

#include <string>

namespace gemmd::testing {

struct HttpReply {
  int status = 0;       // 0: no answer
  std::string headers;  // all of the head, as received
  std::string body;
};

// Sends `method path` to 127.0.0.1:`port` and reads until the server closes.
HttpReply HttpRequest(int port, const std::string& method,
                      const std::string& path);
inline HttpReply HttpGet(int port, const std::string& path) {
  return HttpRequest(port, "GET", path);
}

// A connection to 127.0.0.1:`port` that does nothing on its own; -1 if refused.
int ConnectLoopback(int port);

}  // namespace gemmd::testing
