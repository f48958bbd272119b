// Multiplies matrices on a gemmd server.
//
//   auto client = gemmd::Client::Create({.address = "127.0.0.1:50051"});
//   auto answer = (*client)->Sgemm({.a = a.view(), .b = b.view()});
//   if (answer.ok()) Use(answer->c);
//
// A matrix of any size that the server's devices can hold: what is too large
// for one message is uploaded in chunks, multiplied there and brought back.
//
// Errors are those of the wire contract (`gemmd.v1`), as absl::Status with the
// server's own words: INVALID_ARGUMENT for a request that makes no sense
// (mostly found here, before anything is sent), NOT_FOUND for an unknown
// kernel, RESOURCE_EXHAUSTED for a full queue, OUT_OF_RANGE for what is too
// large, UNAVAILABLE for no server or one that drains, DEADLINE_EXCEEDED,
// CANCELLED, INTERNAL for a device that failed, DATA_LOSS for a product that is
// wrong (ClientOptions::verify_fraction), UNAUTHENTICATED and PERMISSION_DENIED
// from a server that wants to know who calls.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gemmd/matrix.h"
#include "gemmd/resident_matrix.h"
#include "gemmd/server_info.h"
#include "gemmd/sgemm.h"
#include "gemmd/shared_memory.h"
#include "gemmd/tls.h"

namespace gemmd {

namespace client {
class Operation;  // the library's own
class Session;
}  // namespace client

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
  // "host:port", "[ipv6]:port" or "unix:/path/of/socket"; or several servers,
  // as gRPC names them ("dns:///host:port", "ipv4:host:port,host:port"): the
  // first that answers is taken, and the next one when it is gone.
  std::string address = "127.0.0.1:50051";

  // Connections, at most 64; 0: one for every 4 cores of this machine, 1 to 4.
  // A call goes to the one with the fewest in flight; large matrices are split
  // over all. One connection keeps about one core busy on either side, and is
  // made when it is needed.
  int connections = 0;

  // 32 hex digits in lower case: who this client is to the server, which keeps
  // a client's matrices apart from those of others. Empty: 128 random bits.
  // Whoever knows it can use the matrices, so treat it as a secret.
  std::string id = {};

  // TLS, where it is set; plaintext, where not. A server's unix socket is
  // always plaintext.
  std::optional<TlsOptions> tls = {};

  // The bearer token of every call; or a file that holds it and nothing else,
  // looked at before each call, so that a new token counts at once (while none
  // can be read, the last one does). At most one of both; neither is ever part
  // of an error.
  std::string token = {};
  std::string token_file = {};

  // Over plaintext TCP to another host a token can be read on its way: without
  // this, such a client is not made.
  bool allow_plaintext_token = false;

  // For calls that name none of their own, from the call to its answer,
  // connecting and retries included. May be infinite.
  absl::Duration timeout = absl::Minutes(1);

  // How long one try waits for a connection to come about.
  absl::Duration connect_timeout = absl::Seconds(2);

  RetryPolicy retry = {};

  // For how long a thread that waits for the network looks for what comes,
  // before it sleeps; up to 1 s. A sleeping thread's wake-up is a large part of
  // a lone call's time, and the price is a core of this machine for each thread
  // that waits: one for each blocking call, one for each connection with
  // asynchronous calls. Items of streams (below) do without.
  absl::Duration busy_poll = absl::ZeroDuration();

  // Small products (64 KiB each way and 2^26 for m * n * k at most, nothing in
  // shared memory) that SgemmAsync begins go as items of a stream, which takes
  // a third of the CPU time of a call each. For that the server does not hear
  // of their deadlines and cancellations, and counts the stream's calls, not
  // theirs, in grpc_server_call_*; a new token waits for the next stream, 20 s
  // at most. What is tried again is a call.
  bool stream_small_products = false;

  // The part of the products, drawn at random, that is checked before it is
  // handed out, 0 to 1: a wrong one (a bad device, a corrupted wire) becomes
  // DATA_LOSS. See the README for what it costs, what it finds and what it
  // cannot: products whose operands or output are out of this client's sight (a
  // ResidentMatrix without a source) go unchecked, SgemmAnswer::verified false.
  double verify_fraction = 0;
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
  explicit SgemmHandle(std::shared_ptr<client::Operation> operation);

  std::shared_ptr<client::Operation> operation_;
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
  // be there yet. INVALID_ARGUMENT for an address, an option or a file of them
  // that cannot be.
  static absl::StatusOr<std::unique_ptr<Client>> Create(
      const ClientOptions& options);

  // Cancels what SgemmAsync has begun and waits for its callbacks.
  ~Client();

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Multiplies and waits.
  absl::StatusOr<SgemmAnswer> Sgemm(const SgemmCall& call);

  // Multiplies and calls `done` exactly once, on a thread of the client's, also
  // for errors found at once. How much is in flight is the caller's to bound;
  // large products run one or two at a time, however many are begun. `done`
  // should return soon, since it holds up other answers; it may begin calls,
  // but neither wait for one nor destroy the client. With several connections,
  // callbacks of several calls may run at once. The call's operands and output
  // must live until then.
  SgemmHandle SgemmAsync(
      const SgemmCall& call,
      absl::AnyInvocable<void(absl::StatusOr<SgemmAnswer>)> done);

  // Puts a copy of `source` on the server and waits until it can be used. In
  // chunks of 1 MiB; a large one over all connections at once. Beside the
  // errors above: ALREADY_EXISTS (UploadOptions::id), RESOURCE_EXHAUSTED when
  // there is no room, OUT_OF_RANGE when there never will be.
  absl::StatusOr<ResidentMatrix> Upload(const MatrixView& source,
                                        const UploadOptions& options = {});

  // Brings a matrix back, over all connections at once if it is large.
  // NOT_FOUND when the server does not have it and the handle no source.
  absl::StatusOr<Matrix> Download(const ResidentMatrix& matrix);

  // The rows from `first_row` on, as many as `to` has, into `to`.
  absl::Status Download(const ResidentMatrix& matrix, int64_t first_row,
                        const MutableMatrixView& to);

  // A handle of a matrix that this client id has on the server, which stays
  // there when the handle goes. NOT_FOUND if there is none, or not complete.
  absl::StatusOr<ResidentMatrix> FindMatrix(const std::string& id);

  // All matrices of this client id, in order of id.
  absl::StatusOr<std::vector<ResidentMatrix::Info>> ListMatrices();

  // Drops a matrix by its id, for those that have no handle. What uses it now
  // goes on. NOT_FOUND if there is none.
  absl::Status DeleteMatrix(const std::string& id);

  // Memory that the server reads and writes itself, for products of this
  // client: the fastest way on one host. FAILED_PRECONDITION unless the address
  // is a unix socket, UNAVAILABLE unless the server has --shared-memory.
  absl::StatusOr<SharedMemory> ShareMemory(size_t bytes);

  // Asks the server what it is.
  absl::StatusOr<ServerInfo> GetServerInfo();

  // Asks for the health of a service, "" being the server as a whole
  // ("liveness" and "readiness" are others).
  absl::StatusOr<ServerHealth> Health(const std::string& service = "");

  // What this client calls itself in the metadata `gemmd-client`
  // (ClientOptions::id): the server's quotas and matrices go by it.
  const std::string& id() const;

  // Connections that it may make (ClientOptions::connections).
  int connections() const;

 private:
  explicit Client(std::shared_ptr<client::Session> session);

  const std::shared_ptr<client::Session> session_;
};

}  // namespace gemmd
