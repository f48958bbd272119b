// From a result to the answer's bytes, without copying the product.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "server/monotonic_time.h"
#include "server/rpc/live_count.h"
#include "server/schedule/admission.h"
#include "server/schedule/task.h"

namespace gemmd {

// A gemmd.v1.SgemmResponse in two slices: the small fields, and the product
// where it lies. The second slice owns `result.output` and `ticket`: the buffer
// goes back to its pool, and its bytes to admission, when gRPC has sent it.
//
// `encode_start` is when the making of the answer began. `answers` counts the
// buffers that gRPC holds, and outlives them.
grpc::ByteBuffer EncodeSgemmAnswer(const GemmShape& shape,
                                   const KernelInfo& kernel, TaskResult result,
                                   Admission::Ticket ticket,
                                   MonotonicTime encode_start,
                                   LiveCount* answers);

}  // namespace gemmd
