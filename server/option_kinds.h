// The kinds of flags: how the text of a value becomes a field of the options.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/option_flags.h"

namespace gemmd {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = kKiB * 1024;
inline constexpr size_t kGiB = kMiB * 1024;
inline constexpr size_t kTiB = kGiB * 1024;

// Each flag sets `field`; its default is the one that ServerOptions has. A
// value out of the range named is refused, saying what is wanted.

OptionFlag TextFlag(const char* name, const char* value_name,
                    std::string ServerOptions::*field, const char* help);

// A file that guards the server: not empty where it is given, since a variable
// that somebody forgot to set would leave the server open without a word.
OptionFlag GuardFlag(const char* name, std::string ServerOptions::*field,
                     const char* help);

// HOST:PORT, or empty.
OptionFlag AddressFlag(const char* name, std::string ServerOptions::*field,
                       const char* help);

OptionFlag ChoiceFlag(const char* name, std::string ServerOptions::*field,
                      std::vector<std::string> choices, const char* help);

// `value_name` empty: a switch, on by being named.
OptionFlag BoolFlag(const char* name, const char* value_name,
                    bool ServerOptions::*field, const char* help);

OptionFlag IntFlag(const char* name, int ServerOptions::*field, int min,
                   int max, const char* help);

// As ParseBytes (server/options.h) reads it.
OptionFlag BytesFlag(const char* name, size_t ServerOptions::*field, size_t min,
                     size_t max, const char* help);

// `max` infinite allows "inf".
OptionFlag DurationFlag(const char* name, absl::Duration ServerOptions::*field,
                        absl::Duration min, absl::Duration max,
                        const char* help);

// INVALID_ARGUMENT: `value` is not what is `wanted`.
absl::Status BadValue(absl::string_view value, absl::string_view wanted);

}  // namespace gemmd
