// The composition root: makes the parts, joins them, and takes them down in
// order.

#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/options.h"

namespace gemmd {

// A running server.
//
// Thread-safe, but for destruction.
class Server {
 public:
  // Starts everything and returns when the server is ready: devices warm, ports
  // open, health SERVING. UNAVAILABLE naming the address when a port is in use;
  // the errors of CreateBackend.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options);

  // The same with another way to make the backend (CreateBackend's place), so
  // that tests can make devices fail.
  using BackendFactory =
      absl::AnyInvocable<absl::StatusOr<std::unique_ptr<Backend>>(
          const BackendOptions&, const KernelRegistry&)>;
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerOptions& options, BackendFactory make_backend);

  virtual ~Server() = default;

  // The ports really bound (where 0 was asked for); 0: not open.
  virtual int grpc_port() const = 0;
  virtual int http_port() const = 0;

  // "grpc listening on 127.0.0.1:50051\n" and the like, one line for each
  // address that is open: what the program prints and scripts read.
  virtual std::string ListeningLines() const = 0;

  // Blocks until Shutdown was asked for or a device fault calls for it.
  virtual void Wait() = 0;

  // Asks for the end; returns at once. Safe from any thread, not from a signal
  // handler.
  virtual void RequestShutdown() = 0;

  // Takes the log level (a name as --log-level has it) and reads
  // --auth-token-file anew; where one is bad, it stays as it was and the log
  // says why.
  virtual void Reload(absl::string_view log_level) = 0;

  // Teardown order (I5): health NOT_SERVING, drain_delay, refuse new work,
  // finish the queue, gRPC Shutdown(deadline), backend, pools. A device fault
  // cuts drain_delay short. OK, or the fault that ended it.
  //
  // Blocks at most drain_delay + drain_timeout and as long as the products that
  // a device has begun still take: nothing can stop a kernel, and on the CPU a
  // large product of `reference` takes minutes. Who cannot wait ends the
  // process (a second signal, SIGKILL). A device that is given up as stuck is
  // not waited for here, but by the destructor.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace gemmd
