// What the decoders of several messages share.

#pragma once

#include <optional>
#include <span>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/rpc/byte_stream.h"
#include "server/rpc/sgemm_fields.h"
#include "server/rpc/wire_reader.h"

namespace gemmd {

// The value to read into: the one there is, since repeated sub-messages merge,
// else a new one.
template <typename T>
T& Merged(std::optional<T>& field) {
  return field.has_value() ? *field : field.emplace();
}

template <typename T, typename... Ts>
T& Merged(std::variant<Ts...>& oneof) {
  T* same = std::get_if<T>(&oneof);
  return same != nullptr ? *same : oneof.template emplace<T>();
}

// A google.protobuf.Duration, whose tag has just been read.
bool ReadDuration(WireReader& in, DurationFields& duration);

// INVALID_ARGUMENT: the message is no `type`, as the reader found.
absl::Status BrokenMessageError(absl::string_view type,
                                std::span<const ByteSlice> slices,
                                const WireReader& in);

}  // namespace gemmd
