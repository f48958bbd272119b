#include "server/part_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "server/execute/memory_limit.h"
#include "server/observe/build_info.h"

namespace gemmd {

AdmissionOptions AdmissionOptionsOf(const ServerOptions& options) {
  AdmissionOptions admission;
  admission.max_requests = options.queue_max_requests;
  admission.max_bytes = options.queue_max_bytes;
  return admission;
}

BackendOptions BackendOptionsOf(const ServerOptions& options) {
  BackendOptions backend;
  backend.backend = options.backend;
  backend.streams_per_device = options.streams_per_device;
  backend.devices = options.devices;
  backend.staging_bytes = options.pinned_pool_bytes;
  backend.resident_bytes = options.matrix_store_bytes;
  return backend;
}

BatchSchedulerOptions SchedulerOptionsOf(const ServerOptions& options) {
  BatchSchedulerOptions scheduler;
  scheduler.queue.max_batch_requests = options.max_batch_requests;
  scheduler.queue.max_queue_delay =
      absl::ToChronoNanoseconds(options.max_queue_delay);
  scheduler.queue.max_hold = absl::ToChronoNanoseconds(options.max_row_hold);
  scheduler.device_timeout = absl::ToChronoNanoseconds(options.device_timeout);
  return scheduler;
}

MatrixStoreOptions MatrixStoreOptionsOf(const ServerOptions& options) {
  MatrixStoreOptions store;
  store.ttl = options.matrix_ttl;
  store.max_ttl = std::max(store.max_ttl, store.ttl);
  store.device_timeout = options.device_timeout;
  return store;
}

TlsFiles TlsFilesOf(const ServerOptions& options) {
  return {.certificate = options.tls_cert,
          .key = options.tls_key,
          .client_ca = options.tls_client_ca};
}

RpcOptions RpcOptionsOf(const ServerOptions& options,
                        std::optional<size_t> container_limit) {
  RpcOptions rpc;
  rpc.listen = options.listen;
  rpc.unix_socket = options.unix_socket;
  rpc.shared_memory = options.shared_memory;
  rpc.tls = TlsFilesOf(options);
  rpc.kernel = options.kernel;
  rpc.split_flops = 1e9 * options.split_gflop;
  rpc.receive_bytes = ReceiveBytesWithin(container_limit);
  // Two messages must have room: see RpcOptions.
  rpc.max_inline_bytes =
      options.max_inline_bytes > 0
          ? options.max_inline_bytes
          : std::min(rpc.max_inline_bytes, rpc.receive_bytes / 2);
  rpc.max_streams = options.max_streams;
  rpc.max_connection_age = options.max_connection_age;
  if (options.completion_queues > 0) {
    rpc.completion_queues = options.completion_queues;
  }
  rpc.busy_poll = options.busy_poll;
  rpc.gathers_rows = options.max_row_hold > absl::ZeroDuration() &&
                     options.max_queue_delay == absl::ZeroDuration();
  rpc.channelz = options.channelz;
  rpc.version = std::string(BuildVersion());
  rpc.build = absl::StrCat("revision ", BuildRevision(), ", CUDA ", BuildCuda(),
                           ", ", BuildCompiler());
  rpc.max_queue_requests = options.queue_max_requests;
  rpc.max_queue_bytes = options.queue_max_bytes;
  rpc.max_batch_requests = options.max_batch_requests;
  rpc.max_queue_delay = options.max_queue_delay;
  return rpc;
}

absl::Status CheckKernelOption(const ServerOptions& options,
                               const KernelRegistry& registry,
                               const Backend& backend) {
  if (options.kernel.empty() || options.kernel == "auto") {
    return absl::OkStatus();
  }
  const auto kernel = registry.Find(options.kernel);
  if (!kernel.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kernel: ", kernel.status().message()));
  }
  if ((*kernel)->info().space == backend.kernel_space()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--kernel: ", options.kernel, " does not run on the ",
                   backend.name(), " backend, which is in use"));
}

}  // namespace gemmd
