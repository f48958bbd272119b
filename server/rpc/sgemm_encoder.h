// From a result to the answer's bytes, without copying the product.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>

#include "absl/strings/string_view.h"
#include "server/monotonic_time.h"
#include "server/rpc/live_count.h"
#include "server/schedule/admission.h"
#include "server/schedule/task.h"

namespace gemmd {

// What an answer tells besides the task's result.
struct SgemmAnswerFields {
  const GemmShape& shape;
  const KernelInfo& kernel;
  absl::string_view matrix_id;  // of a resident output
  bool replayed = false;
};

// A gemmd.v1.SgemmResponse in two pieces: the small fields, and the product
// where it lies (see StagedSlice; empty when it went elsewhere).
struct EncodedAnswer {
  grpc::Slice fields;
  grpc::Slice c;
};

// `encode_start` is when the making of the answer began.
EncodedAnswer EncodeSgemmAnswer(const SgemmAnswerFields& answer,
                                TaskResult result, Admission::Ticket ticket,
                                MonotonicTime encode_start, LiveCount* answers);

// The answer as a message of its own, and as an item of a stream. The bytes are
// shared.
grpc::ByteBuffer ToMessage(const EncodedAnswer& answer);
grpc::ByteBuffer ToStreamMessage(uint64_t sequence,
                                 const EncodedAnswer& answer);

}  // namespace gemmd
