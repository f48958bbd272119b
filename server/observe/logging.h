// One line an event on stderr, for people (text) or programs (json).

#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace gemmd {

enum class LogLevel { kTrace, kDebug, kInfo, kWarn, kError };

enum class LogFormat {
  kText,  // 2026-01-02T03:04:05.678Z info  message key=value
  kJson,  // {"time":"...","level":"info","message":"...","key":"value"}
};

// Before this is called, text from info on is written. `level` is one of trace,
// debug, info, warn, error; `format` is text or json; INVALID_ARGUMENT
// otherwise. Call before there are other threads; SetLogLevel at any time.
absl::Status InitLogging(absl::string_view level, absl::string_view format);
void SetLogLevel(LogLevel level);

// A named value of a line. Never a secret.
struct LogField {
  absl::string_view name;
  std::string value;
};

// Writes a line if `level` is on. Values are escaped, so that what a client
// sends can neither end the line nor forge a field.
//
// Thread-safe; lines do not mix. Blocks as long as stderr does.
void Log(LogLevel level, absl::string_view message,
         std::initializer_list<LogField> fields = {});

// What is worth knowing of a request that failed.
struct FailedRequest {
  absl::string_view method;      // "gemmd.v1.GemmService/Sgemm"
  absl::string_view client;      // as in TaskSpec
  absl::string_view request_id;  // may be empty
  std::string shape;             // "m=4 n=5 k=6"; may be empty
  absl::string_view kernel;      // may be empty
  double seconds = 0;            // from arrival to the status
};

// One structured line with the fields that are not empty, the code's name and
// its message. A fault of the server's (INTERNAL, UNKNOWN, DATA_LOSS) is an
// error, all else info. Of each, at most kFailedRequestLines a second are
// written, so that a flood of refusals costs a lock each and not a line each;
// the first line of the next second says how many were left out.
inline constexpr int kFailedRequestLines = 20;
void LogFailedRequest(const FailedRequest& request, const absl::Status& status);

}  // namespace gemmd
