// The pieces of a raw message, held while it is read.

#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <span>
#include <vector>

#include "server/rpc/byte_stream.h"

namespace gemmd {

class MessageSlices {
 public:
  // Shares the bytes with `message`, which may be cleared.
  explicit MessageSlices(const grpc::ByteBuffer& message) : buffer_(message) {
    pieces_.reserve(kUsualPieces);
    // It fails only for compressed messages, which are not accepted.
    static_cast<void>(buffer_.Dump(&pieces_));
    slices_.assign(pieces_.begin(), pieces_.end());
  }
  MessageSlices(const MessageSlices&) = delete;
  MessageSlices& operator=(const MessageSlices&) = delete;

  std::span<const ByteSlice> slices() const { return slices_; }

 private:
  static constexpr size_t kUsualPieces = 8;  // of up to 64 KiB

  // First, so that it goes last: the last reference to received bytes gives
  // memory back to gRPC's quota, which on a thread of ours only the end of a
  // buffer may do; the end of a slice would crash there.
  grpc::ByteBuffer buffer_;
  std::vector<grpc::Slice> pieces_;  // a small one holds its bytes itself
  std::vector<ByteSlice> slices_;
};

}  // namespace gemmd
