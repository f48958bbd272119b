// The gRPC side of the server: opens the ports, turns calls into tasks and
// results into answers. No gRPC type is in this header.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/registry.h"
#include "server/auth/access_file.h"
#include "server/auth/tls_files.h"
#include "server/execute/backend.h"
#include "server/monotonic_time.h"
#include "server/observe/metrics.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"
#include "server/store/matrix_store.h"
#include "server/store/request_log.h"

namespace gemmd {

struct RpcOptions {
  // HOST:PORT; port 0 picks a free one. Empty: no TCP. --listen
  std::string listen = "127.0.0.1:50051";
  // A path; empty: none. Plaintext. --unix-socket
  std::string unix_socket;
  // Clients of the unix socket may share memory with the server, over the side
  // socket <unix_socket>.shm. --shared-memory
  bool shared_memory = false;
  // TLS on `listen`; none: plaintext. --tls-cert, --tls-key, --tls-client-ca
  TlsFiles tls;
  // For requests that name no kernel. --kernel
  std::string kernel = "auto";
  // A product of so many operations or more is shared by rows between all
  // devices; 0: none is. --split-gflop
  double split_flops = 1e12;
  // A whole request, and a whole answer; 64 KiB to 1.9 GiB. --max-inline-bytes
  size_t max_inline_bytes = size_t{256} << 20;
  // Calls at the same time on one connection. --max-streams
  int max_streams = 1024;
  // Bytes of messages that are received and not yet staged, over all
  // connections; past it gRPC cancels calls with RESOURCE_EXHAUSTED. At least
  // twice max_inline_bytes.
  size_t receive_bytes = size_t{4} << 30;
  // After this a connection is asked to reconnect, which spreads long-lived
  // clients over new servers. --max-connection-age
  absl::Duration max_connection_age = absl::InfiniteDuration();
  // A connection that takes nothing of what is sent for so long, or that does
  // not answer a ping in that time, is ended.
  absl::Duration send_timeout = absl::Seconds(10);
  // The channelz service. --channelz
  bool channelz = false;

  // Told by GetServerInfo, as they were configured.
  std::string version;
  std::string build;
  int max_queue_requests = 4096;
  size_t max_queue_bytes = size_t{4} << 30;
  int max_batch_requests = 64;
  absl::Duration max_queue_delay = absl::ZeroDuration();

  // Parameters of speed, with what was measured in README.md. Completion
  // queues, each with a polling thread of its own. --completion-queues
  int completion_queues = 1;
  // How long a polling thread looks for the next event before it sleeps.
  // --busy-poll
  absl::Duration busy_poll = absl::ZeroDuration();
  // Whether rows are held for each other (BatchQueueOptions::max_hold), so that
  // a polling thread has reason to look for more of them.
  bool gathers_rows = true;
  // Calls of Sgemm offered to gRPC at any time, a queue.
  int offered_calls = 128;
  // A message up to this is handled on the polling thread (1 MiB is copied in
  // about 40 us); a larger one goes to a worker.
  size_t polling_thread_bytes = size_t{1} << 20;
  // Products of one SgemmStream between its read and the write of its answer,
  // and their bytes (one larger product runs alone): what the server reads
  // ahead.
  int stream_items = 64;
  size_t stream_bytes = size_t{512} << 20;
  // Workers for large messages; 0: half of the cores, 1 to 8.
  int copy_threads = 0;
};

// All outlive the RpcServer.
struct RpcDependencies {
  BatchScheduler* scheduler = nullptr;
  Backend* backend = nullptr;
  const KernelRegistry* registry = nullptr;
  Admission* admission = nullptr;
  Metrics* metrics = nullptr;
  // Both null: no matrix can be kept.
  MatrixStore* store = nullptr;
  RequestLog* request_log = nullptr;
  // Who may call; null: everybody may do everything. --auth-token-file
  AccessFile* access = nullptr;
  // Called when a port takes no more connections, and never will again, with
  // the system's reason; on a thread of the server's. Null: nobody is told.
  std::function<void(const std::string& reason)> port_lost;
};

// Serves gemmd.v1.GemmService, grpc.health.v1.Health and reflection.
//
// Health: "", "gemmd.v1.GemmService" and "readiness" follow SetServing, not
// serving at the start; "liveness" is serving as long as somebody answers.
//
// Thread-safe, but for Shutdown and destruction.
class RpcServer {
 public:
  // Opens the ports and answers from then on. Errors: UNAVAILABLE naming the
  // address when it cannot be listened on; INVALID_ARGUMENT for an option out
  // of its range.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const RpcOptions& options, const RpcDependencies& dependencies);

  // What Start would say of these options and their addresses now; asked early,
  // before devices warm up.
  static absl::Status Check(const RpcOptions& options);

  // Shuts down at once where Shutdown was not called, and returns when every
  // call has ended, on a stuck device too, and gRPC has let go of the last
  // staging buffer.
  virtual ~RpcServer() = default;

  // The port really bound; 0: no TCP.
  virtual int port() const = 0;

  virtual void SetServing(bool serving) = 0;

  // From now on new products are answered UNAVAILABLE with RetryInfo. Returns
  // when those that began before are with the scheduler, so that it may be
  // drained without refusing one of them: some milliseconds later, but for
  // requests that are still on their way, and at `deadline` at the latest.
  virtual void RefuseNew(MonotonicTime deadline) = 0;

  // Refuses new work, waits for the calls in progress until `deadline`, ends
  // the connections, which cancels what is left then, and returns when every
  // call has ended. A product that a device is running is waited for in any
  // case, but not past `deadline` for a device that is stuck (BatchScheduler,
  // MatrixStore): whoever destroys the server then may wait for ever. True if
  // nothing was cut off.
  //
  // Needs: the scheduler still ends tasks (drain it first).
  virtual bool Shutdown(MonotonicTime deadline) = 0;
};

}  // namespace gemmd
