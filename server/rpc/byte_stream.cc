#include "server/rpc/byte_stream.h"

#include <algorithm>

namespace gemmd {

bool ByteStream::Next(const void** data, int* size) {
  while (slice_ < slices_.size() && offset_ == slices_[slice_].size()) {
    ++slice_;
    offset_ = 0;
  }
  if (slice_ == slices_.size()) return false;
  const ByteSlice rest = slices_[slice_].subspan(offset_);
  *data = rest.data();
  *size = static_cast<int>(rest.size());
  offset_ += rest.size();
  position_ += *size;
  return true;
}

void ByteStream::BackUp(int count) {
  // Only bytes of the last Next may be given back, so they are in this slice.
  offset_ -= count;
  position_ -= count;
}

bool ByteStream::Skip(int count) {
  const void* data;
  int size;
  while (count > 0 && Next(&data, &size)) {
    const int taken = std::min(count, size);
    BackUp(size - taken);
    count -= taken;
  }
  return count == 0;
}

size_t TotalBytes(std::span<const ByteSlice> slices) {
  size_t total = 0;
  for (const ByteSlice& slice : slices) total += slice.size();
  return total;
}

}  // namespace gemmd
