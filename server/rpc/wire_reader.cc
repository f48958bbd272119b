#include "server/rpc/wire_reader.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "server/rpc/utf8.h"

namespace gemmd {
namespace {

constexpr size_t kMaxTagOrSizeBytes = 5;

}  // namespace

WireReader::WireReader(std::span<const ByteSlice> slices)
    : stream_(slices), in_(&stream_) {
  in_.PushLimit(static_cast<int>(TotalBytes(slices)));
}

bool WireReader::ReadInt64(int64_t* value) {
  uint64_t bits;
  if (!in_.ReadVarint64(&bits)) return false;
  *value = static_cast<int64_t>(bits);
  return true;
}

bool WireReader::ReadInt32(int32_t* value) {
  uint64_t bits;
  if (!in_.ReadVarint64(&bits)) return false;
  *value = static_cast<int32_t>(bits);
  return true;
}

bool WireReader::ReadBool(bool* value) {
  uint64_t bits;
  if (!in_.ReadVarint64(&bits)) return false;
  *value = bits != 0;
  return true;
}

bool WireReader::ReadFloat(float* value) {
  uint32_t bits;
  if (!in_.ReadLittleEndian32(&bits)) return false;
  *value = std::bit_cast<float>(bits);
  return true;
}

template <typename OnPiece>
bool WireReader::ReadText(ShortText* text, OnPiece on_piece) {
  int size;
  if (!ReadSize(&size)) return false;
  text->size = size;
  text->head.clear();
  while (size > 0) {
    const void* data;
    int available;
    if (!in_.GetDirectBufferPointer(&data, &available)) return false;
    const ByteSlice piece(static_cast<const uint8_t*>(data),
                          std::min(size, available));
    const size_t kept =
        std::min(piece.size(), ShortText::kKeptBytes - text->head.size());
    text->head.append(reinterpret_cast<const char*>(piece.data()), kept);
    if (!on_piece(piece)) return false;
    in_.Skip(static_cast<int>(piece.size()));
    size -= static_cast<int>(piece.size());
  }
  return true;
}

bool WireReader::ReadBytes(ShortText* text) {
  return ReadText(text, [](ByteSlice) { return true; });
}

bool WireReader::ReadString(ShortText* text) {
  Utf8Checker utf8;
  return ReadText(text, [&](ByteSlice piece) { return utf8.Feed(piece); }) &&
         utf8.complete();
}

bool WireReader::ReadRange(ByteRange* range) {
  int size;
  if (!ReadSize(&size)) return false;
  range->offset = position();
  range->size = size;
  return in_.Skip(size);
}

bool WireReader::Skip(uint32_t tag) {
  if (tag >> 3 == 0) return false;
  uint64_t varint;
  int size;
  switch (static_cast<WireType>(tag & 7)) {
    case WireType::kVarint:
      return in_.ReadVarint64(&varint);
    case WireType::kFixed64:
      return in_.Skip(8);
    case WireType::kLength:
      return ReadSize(&size) && in_.Skip(size);
    case WireType::kGroup:
      return SkipGroup(tag);
    case WireType::kFixed32:
      return in_.Skip(4);
    case WireType::kEndGroup:
      break;
  }
  return false;
}

bool WireReader::SkipGroup(uint32_t start_tag) {
  if (depth_ == 0) return false;
  --depth_;
  const uint32_t end_tag = start_tag + 1;
  uint32_t tag;
  while (ReadTag(&tag)) {
    if (tag == end_tag) {
      ++depth_;
      return true;
    }
    if (!Skip(tag)) return false;
  }
  return false;
}

bool WireReader::ReadTag(uint32_t* tag) {
  const size_t start = position();
  return in_.ReadVarint32(tag) && position() - start <= kMaxTagOrSizeBytes;
}

bool WireReader::ReadSize(int* size) {
  const size_t start = position();
  uint64_t value;
  if (!in_.ReadVarint64(&value) || position() - start > kMaxTagOrSizeBytes ||
      value > static_cast<uint64_t>(in_.BytesUntilLimit())) {
    return false;
  }
  *size = static_cast<int>(value);
  return true;
}

}  // namespace gemmd
