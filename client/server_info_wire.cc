#include "client/server_info_wire.h"

namespace gemmd::client {
namespace {

ServerInfo::Device FromProto(const v1::Device& from) {
  return {
      .index = from.index(),
      .name = from.name(),
      .memory_bytes = from.memory_bytes(),
      .compute_capability = from.compute_capability(),
      .streams = from.streams(),
  };
}

ServerInfo::Kernel FromProto(const v1::Kernel& from) {
  return {
      .name = from.name(),
      .backend = from.backend(),
      .precision = PrecisionFromProto(from.precision()),
      .description = from.description(),
      .available = from.available(),
      .unavailable_reason = from.unavailable_reason(),
      .batch_invariant = from.batch_invariant(),
  };
}

ServerInfo::Limits FromProto(const v1::Limits& from) {
  return {
      .max_inline_bytes = from.max_inline_bytes(),
      .max_queue_requests = from.max_queue_requests(),
      .max_queue_bytes = from.max_queue_bytes(),
      .max_batch_requests = from.max_batch_requests(),
      .max_queue_delay = absl::Seconds(from.max_queue_delay().seconds()) +
                         absl::Nanoseconds(from.max_queue_delay().nanos()),
      .matrix_store_bytes = from.matrix_store_bytes(),
      .max_chunk_bytes = from.max_chunk_bytes(),
      .shared_memory = from.shared_memory(),
  };
}

}  // namespace

SgemmCall::Precision PrecisionFromProto(v1::Precision from) {
  switch (from) {
    case v1::PRECISION_FP32_EMULATED:
      return SgemmCall::Precision::kFp32Emulated;
    case v1::PRECISION_TF32:
      return SgemmCall::Precision::kTf32;
    default:
      return SgemmCall::Precision::kFp32;
  }
}

ServerInfo FromProto(const v1::GetServerInfoResponse& from) {
  ServerInfo info;
  info.version = from.version();
  info.build = from.build();
  info.backend = from.backend();
  for (const v1::Device& device : from.devices()) {
    info.devices.push_back(FromProto(device));
  }
  for (const v1::Kernel& kernel : from.kernels()) {
    info.kernels.push_back(FromProto(kernel));
  }
  info.limits = FromProto(from.limits());
  return info;
}

}  // namespace gemmd::client
