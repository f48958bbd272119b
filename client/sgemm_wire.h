// Products as gRPC messages, with as few copies as there can be.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "client/lent_memory.h"
#include "client/sgemm_check.h"
#include "client/shared_blocks.h"
#include "gemmd/sgemm.h"

namespace gemmd::client {

// A gemmd.v1.SgemmRequest in slices: a packed operand's numbers are a slice of
// the caller's memory, lent by `lent`; padded ones are packed into a new slice,
// and a few KiB are simply copied. What lies in `shared` is only named.
//
// Needs: CheckCall(call) returned `size`.
grpc::ByteBuffer EncodeSgemm(const SgemmCall& call, const ProductSize& size,
                             const SharedBlocks& shared, LentMemory* lent);

// Reads a gemmd.v1.SgemmResponse, its numbers straight from the network's
// slices into `c`, which is size.m x size.n; null: the product went elsewhere,
// and the answer has no numbers. INTERNAL when the answer is no such message or
// has another shape.
absl::Status DecodeSgemm(grpc::ByteBuffer* answer, const ProductSize& size,
                         const MutableMatrixView* c, SgemmExecution* execution);

}  // namespace gemmd::client
