// Protobuf's wire format, field by field, with the rules of the generated
// parser: what it accepts is accepted, what it refuses is refused.
//
// CodedInputStream alone is more lenient: it takes tags and lengths of up to
// ten bytes, and cuts a sub-message that claims more than its parent holds.

#pragma once

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <span>
#include <string>

#include "server/rpc/byte_stream.h"

namespace gemmd {

enum class WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLength = 2,
  kGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

constexpr uint32_t WireTag(int field_number, WireType type) {
  return static_cast<uint32_t>(field_number) << 3 | static_cast<uint32_t>(type);
}

// A string or short bytes field. Only its first bytes are kept, so that a
// message cannot make the server hold its text twice; every text of the wire
// contract is shorter.
struct ShortText {
  static constexpr size_t kKeptBytes = 256;

  std::string head;  // at most kKeptBytes
  size_t size = 0;   // of the whole
};

// Reads one message. Every method returns false where the message is malformed;
// the reader is then of no further use but for position().
//
// Thread-compatible.
class WireReader {
 public:
  // `slices` and their bytes outlive the reader.
  explicit WireReader(std::span<const ByteSlice> slices);

  // Calls `on_field(tag)` for each field of the message; it reads the value, or
  // skips it with Skip, and returns false if that failed.
  template <typename OnField>
  bool ReadFields(OnField&& on_field) {
    while (in_.BytesUntilLimit() > 0) {
      uint32_t tag;
      if (!ReadTag(&tag) || !on_field(tag)) return false;
    }
    return true;
  }

  // The same for a sub-message, whose tag has just been read.
  template <typename OnField>
  bool ReadMessage(OnField&& on_field) {
    int size;
    if (!ReadSize(&size)) return false;
    --depth_;  // the contract's own messages nest a few deep at most
    const auto limit = in_.PushLimit(size);
    if (!ReadFields(on_field)) return false;
    in_.PopLimit(limit);
    ++depth_;
    return true;
  }

  bool ReadUint64(uint64_t* value) { return in_.ReadVarint64(value); }
  bool ReadInt64(int64_t* value);
  bool ReadInt32(int32_t* value);  // enums too: they are open
  bool ReadBool(bool* value);
  bool ReadFloat(float* value);
  bool ReadBytes(ShortText* text);   // any bytes
  bool ReadString(ShortText* text);  // UTF-8
  bool ReadRange(ByteRange* range);  // where a bytes field lies
  bool Skip(uint32_t tag);

  // Bytes read so far.
  size_t position() const { return in_.CurrentPosition(); }

 private:
  bool ReadTag(uint32_t* tag);
  bool ReadSize(int* size);
  bool SkipGroup(uint32_t start_tag);
  template <typename OnPiece>
  bool ReadText(ShortText* text, OnPiece on_piece);

  ByteStream stream_;
  google::protobuf::io::CodedInputStream in_;
  int depth_ = 100;  // how much deeper messages and groups may nest
};

}  // namespace gemmd
