// The messages of SgemmStream.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace gemmd::client {

// A gemmd.v1.SgemmStreamRequest; `request` is a gemmd.v1.SgemmRequest.
grpc::ByteBuffer EncodeStreamItem(uint64_t sequence,
                                  const grpc::Slice& request);

// What a gemmd.v1.SgemmStreamResponse says.
struct StreamAnswer {
  uint64_t sequence = 0;

  // A gemmd.v1.SgemmResponse, or the product's own error.
  absl::StatusOr<grpc::ByteBuffer> result;
};

// INTERNAL for what is no such message.
absl::StatusOr<StreamAnswer> DecodeStreamAnswer(
    const grpc::ByteBuffer& message);

}  // namespace gemmd::client
