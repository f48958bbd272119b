#include "server/rpc/server_info.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/field_checks.h"
#include "server/rpc/precision_wire.h"

namespace gemmd {
namespace {

void Describe(const DeviceInfo& device, v1::Device& out) {
  out.set_index(device.index);
  out.set_name(device.name);
  out.set_memory_bytes(device.memory_bytes);
  out.set_compute_capability(device.compute_capability);
  out.set_streams(device.streams);
}

void Describe(const KernelEntry& entry, const Backend& backend,
              v1::Kernel& out) {
  const KernelInfo& info = entry.info;
  out.set_name(info.name);
  out.set_precision(ToWire(info.precision));
  out.set_description(info.description);
  out.set_batch_invariant(info.batch_invariant);
  out.set_backend(info.space == MemorySpace::kHost ? "cpu" : "cuda");
  if (entry.kernel == nullptr) {
    out.set_unavailable_reason(entry.unavailable_reason);
  } else if (info.space != backend.kernel_space()) {
    out.set_unavailable_reason(
        absl::StrCat("the server runs the ", backend.name(), " backend"));
  } else {
    out.set_available(true);
  }
}

void Describe(const RpcOptions& options, v1::Limits& out) {
  out.set_max_inline_bytes(options.max_inline_bytes);
  out.set_max_queue_requests(options.max_queue_requests);
  out.set_max_queue_bytes(options.max_queue_bytes);
  out.set_max_batch_requests(options.max_batch_requests);
  absl::Duration rest;
  out.mutable_max_queue_delay()->set_seconds(
      absl::IDivDuration(options.max_queue_delay, absl::Seconds(1), &rest));
  out.mutable_max_queue_delay()->set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  out.set_max_chunk_bytes(kMaxChunkBytes);
}

}  // namespace

v1::GetServerInfoResponse DescribeServer(const RpcOptions& options,
                                         const RpcDependencies& dependencies) {
  v1::GetServerInfoResponse info;
  info.set_version(options.version);
  info.set_build(options.build);
  info.set_backend(std::string(dependencies.backend->name()));
  for (const auto& device : dependencies.backend->devices()) {
    Describe(device->info(), *info.add_devices());
  }
  for (const KernelEntry& entry : dependencies.registry->entries()) {
    Describe(entry, *dependencies.backend, *info.add_kernels());
  }
  Describe(options, *info.mutable_limits());
  if (const MatrixStore* store = dependencies.store; store != nullptr) {
    info.mutable_limits()->set_matrix_store_bytes(store->capacity_bytes());
  }
  return info;
}

}  // namespace gemmd
