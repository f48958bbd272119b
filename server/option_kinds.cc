#include "server/option_kinds.h"

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "server/listen_address.h"

namespace gemmd {
namespace {

constexpr std::pair<absl::string_view, size_t> kByteUnits[] = {
    {"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}, {"B", 1}};

std::string FormatBytes(size_t bytes) {
  for (const auto& [unit, size] : kByteUnits) {
    if (bytes >= size && bytes % size == 0) {
      return absl::StrCat(bytes / size, unit);
    }
  }
  return "0";
}

absl::Status SetBool(absl::string_view value, bool* field) {
  const std::string lower = absl::AsciiStrToLower(value);
  const bool on = lower == "on" || lower == "true" || lower == "1";
  if (!on && lower != "off" && lower != "false" && lower != "0") {
    return BadValue(value, "one of on, off, true, false, 1, 0");
  }
  *field = on;
  return absl::OkStatus();
}

}  // namespace

absl::Status BadValue(absl::string_view value, absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", value, "\" is not ", wanted));
}

OptionFlag TextFlag(const char* name, const char* value_name,
                    std::string ServerOptions::*field, const char* help) {
  return {name, value_name, help, ServerOptions{}.*field,
          [=](absl::string_view value, ServerOptions* options) {
            options->*field = std::string(value);
            return absl::OkStatus();
          }};
}

OptionFlag GuardFlag(const char* name, std::string ServerOptions::*field,
                     const char* help) {
  OptionFlag flag = TextFlag(name, "FILE", field, help);
  flag.set = [=](absl::string_view value, ServerOptions* options) {
    options->*field = std::string(value);
    return value.empty()
               ? BadValue(value, "a file; to go without, leave it out")
               : absl::OkStatus();
  };
  return flag;
}

OptionFlag AddressFlag(const char* name, std::string ServerOptions::*field,
                       const char* help) {
  OptionFlag flag = TextFlag(name, "HOST:PORT", field, help);
  flag.set = [=](absl::string_view value, ServerOptions* options) {
    options->*field = std::string(value);
    return value.empty() ? absl::OkStatus()
                         : ParseListenAddress(value).status();
  };
  return flag;
}

OptionFlag ChoiceFlag(const char* name, std::string ServerOptions::*field,
                      std::vector<std::string> choices, const char* help) {
  OptionFlag flag = TextFlag(name, "NAME", field, help);
  flag.value_name = absl::StrJoin(choices, "|");
  flag.set = [=](absl::string_view value, ServerOptions* options) {
    for (const std::string& choice : choices) {
      if (value == choice) {
        options->*field = choice;
        return absl::OkStatus();
      }
    }
    return BadValue(value,
                    absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  };
  return flag;
}

OptionFlag BoolFlag(const char* name, const char* value_name,
                    bool ServerOptions::*field, const char* help) {
  return {name, value_name, help, ServerOptions{}.*field ? "on" : "off",
          [=](absl::string_view value, ServerOptions* options) {
            return SetBool(value, &(options->*field));
          }};
}

OptionFlag IntFlag(const char* name, int ServerOptions::*field, int min,
                   int max, const char* help) {
  return {
      name, "N", help, absl::StrCat(ServerOptions{}.*field),
      [=](absl::string_view value, ServerOptions* options) {
        int number;
        if (!absl::SimpleAtoi(value, &number) || number < min || number > max) {
          return BadValue(
              value, absl::StrCat("a whole number from ", min, " to ", max));
        }
        options->*field = number;
        return absl::OkStatus();
      }};
}

OptionFlag BytesFlag(const char* name, size_t ServerOptions::*field, size_t min,
                     size_t max, const char* help) {
  return {name, "SIZE", help, FormatBytes(ServerOptions{}.*field),
          [=](absl::string_view value, ServerOptions* options) -> absl::Status {
            const absl::StatusOr<size_t> bytes = ParseBytes(value);
            if (!bytes.ok()) return bytes.status();
            if (*bytes < min || *bytes > max) {
              return BadValue(
                  value, absl::StrCat("a size from ", FormatBytes(min), " to ",
                                      FormatBytes(max)));
            }
            options->*field = *bytes;
            return absl::OkStatus();
          }};
}

OptionFlag DurationFlag(const char* name, absl::Duration ServerOptions::*field,
                        absl::Duration min, absl::Duration max,
                        const char* help) {
  return {name, "DURATION", help, absl::FormatDuration(ServerOptions{}.*field),
          [=](absl::string_view value, ServerOptions* options) {
            absl::Duration duration;
            if (!absl::ParseDuration(value, &duration) || duration < min ||
                duration > max) {
              return BadValue(
                  value,
                  absl::StrCat("a duration from ", absl::FormatDuration(min),
                               " to ", absl::FormatDuration(max),
                               " with its unit, as 5ms or 30s"));
            }
            options->*field = duration;
            return absl::OkStatus();
          }};
}

absl::StatusOr<size_t> ParseBytes(absl::string_view text) {
  const absl::Status error =
      BadValue(text, "a size, as 1GiB, 256MiB, 64KiB or a number of bytes");
  absl::string_view digits = absl::StripAsciiWhitespace(text);
  size_t factor = 1;
  for (const auto& [unit, size] : kByteUnits) {
    if (absl::ConsumeSuffix(&digits, unit)) {
      factor = size;
      break;
    }
  }
  digits = absl::StripAsciiWhitespace(digits);
  uint64_t number;
  if (digits.empty() ||
      digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &number)) {
    return error;
  }
  size_t bytes;
  if (__builtin_mul_overflow(number, factor, &bytes)) {
    return BadValue(text, "a size below 16384PiB");
  }
  return bytes;
}

}  // namespace gemmd
