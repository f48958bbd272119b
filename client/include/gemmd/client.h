// Multiplies matrices on a gemmd server.
//
//   auto client = gemmd::Client::Create({.address = "127.0.0.1:50051"});
//   auto answer = (*client)->Sgemm({.a = a.view(), .b = b.view()});
//   if (answer.ok()) Use(answer->c);
//
// Errors are those of the wire contract (`gemmd.v1`), as absl::Status with the
// server's own words: INVALID_ARGUMENT for a request that makes no sense
// (mostly found here, before anything is sent), NOT_FOUND for an unknown
// kernel, RESOURCE_EXHAUSTED for a full queue, OUT_OF_RANGE for what is too
// large, UNAVAILABLE for no server or one that drains, DEADLINE_EXCEEDED,
// CANCELLED, INTERNAL for a device that failed.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/matrix.h"
#include "gemmd/server_info.h"
#include "gemmd/sgemm.h"

namespace gemmd {

namespace client {
class Call;  // the library's own
}

// When a call that failed is tried again: on UNAVAILABLE, and on
// RESOURCE_EXHAUSTED that carries google.rpc.RetryInfo; on nothing else. The
// wait before try i + 1 is drawn evenly from [0.5, 1] times
// min(initial_backoff * 2^(i-1), max_backoff), and is at least the server's
// RetryInfo. A wait that would pass the call's deadline is not begun: the error
// at hand is returned instead.
struct RetryPolicy {
  int max_attempts = 5;  // 1: never again
  absl::Duration initial_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(2);
};

// What a client is made with.
struct ClientOptions {
  // "host:port", "[ipv6]:port" or "unix:/path/of/socket".
  std::string address = "127.0.0.1:50051";

  // Connections, 1 to 64. Calls go to the one with the fewest in flight. One
  // connection keeps about one core busy on either side.
  int connections = 1;

  // For calls that name none of their own, from the call to its answer,
  // connecting and retries included. May be infinite.
  absl::Duration timeout = absl::Minutes(1);

  // How long one try waits for a connection to come about.
  absl::Duration connect_timeout = absl::Seconds(2);

  RetryPolicy retry = {};
};

// A call in progress. Holding one is not needed: letting go of it does nothing
// to the call.
class SgemmHandle {
 public:
  // Ends the call soon, with CANCELLED unless it is done already. From any
  // thread, also when the client is gone.
  void Cancel();

 private:
  friend class Client;
  explicit SgemmHandle(std::shared_ptr<client::Call> call);

  std::shared_ptr<client::Call> call_;
};

// Connections to one server.
//
// Thread-safety: every method may be called from any thread at once; the
// destructor from one thread, after all blocking calls have returned.
//
// Memory: an operand whose rows are packed is sent from where it lies; one with
// a leading dimension is copied once on the way. The operands must stay as they
// are until the call is done. The answer is copied once, from the network into
// its matrix.
//
// Deadline: a call is done when it has its answer or error and the network has
// let go of its operands, which gRPC waits for. A server that stops reading in
// the middle of a large operand (stopped, or its host gone) can so hold a call
// past its deadline, until it reads on or the connection breaks: after 20 s
// over TCP, over a unix socket when the server ends.
class Client {
 public:
  // Makes a client; connects when the first call needs it, so a server need not
  // be there yet. INVALID_ARGUMENT for an address or an option that cannot be.
  static absl::StatusOr<std::unique_ptr<Client>> Create(
      const ClientOptions& options);

  // Cancels what SgemmAsync has begun and waits for its callbacks.
  ~Client();

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Multiplies and waits.
  absl::StatusOr<SgemmAnswer> Sgemm(const SgemmCall& call);

  // Multiplies and calls `done` exactly once, on a thread of the client's, also
  // for errors found at once. `done` should return soon, since it holds up
  // other answers; it may begin calls, but neither wait for one nor destroy the
  // client. The call's operands and output must live until then.
  SgemmHandle SgemmAsync(
      const SgemmCall& call,
      absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)> done);

  // Asks the server what it is.
  absl::StatusOr<ServerInfo> GetServerInfo();

  // Asks for the health of a service, "" being the server as a whole
  // ("liveness" and "readiness" are others).
  absl::StatusOr<ServerHealth> Health(const std::string& service = "");

  // The random 128 bits, in 32 hex digits, that this client gives itself in
  // the metadata `gemmd-client`: the server's quotas go by it.
  const std::string& id() const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd
