// Pieces of messages that are written by hand.

#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/io/coded_stream.h"

namespace gemmd::client {

inline constexpr int kVarintType = 0;
inline constexpr int kLengthType = 2;

constexpr uint32_t Tag(int field, int wire_type) {
  return static_cast<uint32_t>(field) << 3 | wire_type;
}

inline void AppendVarint(uint64_t value, std::string* out) {
  uint8_t bytes[10];
  const uint8_t* end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(value,
                                                                    bytes);
  out->append(reinterpret_cast<const char*>(bytes), end - bytes);
}

inline void AppendTag(int field, int wire_type, std::string* out) {
  AppendVarint(Tag(field, wire_type), out);
}

inline google::protobuf::Duration DurationToProto(absl::Duration from) {
  google::protobuf::Duration to;
  to.set_seconds(absl::IDivDuration(from, absl::Seconds(1), &from));
  to.set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(from)));
  return to;
}

inline absl::Duration DurationFromProto(
    const google::protobuf::Duration& from) {
  return absl::Seconds(from.seconds()) + absl::Nanoseconds(from.nanos());
}

}  // namespace gemmd::client
