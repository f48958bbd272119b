// One line an event on stderr, for people (text) or programs (json).

#pragma once

#include <chrono>
#include <initializer_list>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

enum class LogFormat {
  kText,  // 2026-01-02T03:04:05.678Z info  message key=value
  kJson,  // {"time":"...","level":"info","message":"...","key":"value"}
};

// "trace", "debug", "info", "warn" or "error"; else INVALID_ARGUMENT.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view level);

// Before this is called, text from info on is written. `level` is one of trace,
// debug, info, warn, error; `format` is text or json; INVALID_ARGUMENT
// otherwise. Call before there are other threads; SetLogLevel at any time.
absl::Status InitLogging(absl::string_view level, absl::string_view format);
void SetLogLevel(LogLevel level);

// Whether lines of this level are written now. Costs a few instructions: what
// only a line needs is to be made after asking.
bool IsLogOn(LogLevel level);

// A named value of a line. Never a secret.
struct LogField {
  absl::string_view name;
  std::string value;
};

// `text` without what would end a line or speak to a terminal: control
// characters as \n or \u001b.
std::string OneLine(absl::string_view text);

// Writes a line if `level` is on. Values are escaped, so that what a client
// sends can neither end the line nor forge a field.
//
// Thread-safe; lines do not mix. Does not wait for stderr: a thread of its own
// writes, and where stderr is not read the oldest lines are lost, which a later
// line says.
void Log(LogLevel level, absl::string_view message,
         std::span<const LogField> fields);
void Log(LogLevel level, absl::string_view message,
         std::initializer_list<LogField> fields = {});

// Waits until all lines so far are written, `timeout` at most; false if they
// are not. exit() and the return of main() call it, an abort does not.
bool FlushLog(std::chrono::milliseconds timeout = std::chrono::seconds(1));

}  // namespace gemmd
