// A message in pieces, as gRPC delivers it, readable as one protobuf stream.

#pragma once

#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace gemmd {

// One piece of a message. A 64 MiB message comes in about a thousand of them,
// the smallest of a few bytes.
using ByteSlice = std::span<const uint8_t>;

// Some bytes of a message, whatever pieces they lie in.
struct ByteRange {
  size_t offset = 0;  // from the start of the message
  size_t size = 0;

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The slices one after the other; nothing is copied. The slices and their bytes
// outlive the stream. Messages are smaller than 2 GiB, protobuf's own bound.
//
// Thread-compatible.
class ByteStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit ByteStream(std::span<const ByteSlice> slices) : slices_(slices) {}

  bool Next(const void** data, int* size) override;
  void BackUp(int count) override;
  bool Skip(int count) override;
  int64_t ByteCount() const override { return position_; }

 private:
  std::span<const ByteSlice> slices_;
  size_t slice_ = 0;   // the next byte is slices_[slice_][offset_], or where
  size_t offset_ = 0;  // that does not exist, the first one after it
  int64_t position_ = 0;
};

// Bytes in all slices together.
size_t TotalBytes(std::span<const ByteSlice> slices);

}  // namespace gemmd
