// Small messages to and from raw byte buffers, by the generated code.

#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"

namespace gemmd {

template <typename Message>
grpc::ByteBuffer ToRaw(const Message& message) {
  grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// Empties `raw`. INVALID_ARGUMENT if it is no such message.
template <typename Message>
absl::StatusOr<Message> FromRaw(grpc::ByteBuffer* raw) {
  const size_t bytes = raw->Length();
  Message message;
  if (!grpc::SerializationTraits<Message>::Deserialize(raw, &message).ok()) {
    return InvalidFieldError(
        "request", absl::StrCat("the message of ", bytes, " bytes is not a ",
                                Message::descriptor()->full_name()));
  }
  return message;
}

}  // namespace gemmd
