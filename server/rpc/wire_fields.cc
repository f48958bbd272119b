#include "server/rpc/wire_fields.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/duration.pb.h"
#include "proto/error_details.h"

namespace gemmd {

bool ReadDuration(WireReader& in, DurationFields& duration) {
  using Message = google::protobuf::Duration;
  return in.ReadMessage([&](uint32_t tag) {
    switch (tag) {
      case WireTag(Message::kSecondsFieldNumber, WireType::kVarint):
        return in.ReadInt64(&duration.seconds);
      case WireTag(Message::kNanosFieldNumber, WireType::kVarint):
        return in.ReadInt32(&duration.nanos);
      default:
        return in.Skip(tag);
    }
  });
}

absl::Status BrokenMessageError(absl::string_view type,
                                std::span<const ByteSlice> slices,
                                const WireReader& in) {
  return InvalidFieldError(
      "request",
      absl::StrCat("the message of ", TotalBytes(slices), " bytes is not a ",
                   type, ": its encoding breaks at byte ", in.position()));
}

}  // namespace gemmd
