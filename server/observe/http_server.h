// The plaintext HTTP port: metrics, probes and a page that says what is here.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Answers GET and HEAD of fixed paths from functions; 404 and 405 otherwise.
// Serves no files and reads no request bodies.
//
// Has a thread of its own, so neither a scrape nor a client that never reads
// takes one from the requests being multiplied; every connection is closed
// after its answer, and after a few seconds without one. At most 256 are held;
// past them a new one takes the place of the oldest without a request.
//
// Not civetweb, though prometheus-cpp brings it: it holds a thread for each
// connection, so that a few silent clients keep the probes out, and its threads
// have stacks of 100 KiB, fixed when it is compiled, from which glibc takes the
// thread-local memory of every linked library.
//
// Thread-safe.
class HttpServer {
 public:
  // Called on the server's own thread, one at a time; must not throw.
  using Handler = std::function<HttpResponse()>;

  // Listens on `address`, "HOST:PORT"; port 0 picks a free one. `handlers` are
  // by path ("/metrics").
  // UNAVAILABLE naming the address when it cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      absl::string_view address, std::map<std::string, Handler> handlers);

  // Finishes the answers under way and closes the port.
  virtual ~HttpServer() = default;

  // The port really bound.
  virtual int port() const = 0;
};

}  // namespace gemmd
