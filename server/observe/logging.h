// One line an event on stderr, for people (text) or programs (json).

#pragma once

#include <chrono>
#include <initializer_list>
#include <string>
#include <utility>

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
         std::initializer_list<LogField> fields = {});

// Waits until all lines so far are written, `timeout` at most; false if they
// are not. exit() and the return of main() call it, an abort does not.
bool FlushLog(std::chrono::milliseconds timeout = std::chrono::seconds(1));

// What is worth knowing of a request that failed.
struct FailedRequest {
  absl::string_view method;  // "gemmd.v1.GemmService/Sgemm"
  // Empty where they are not known.
  std::string client;      // as in TaskSpec
  std::string request_id;  // the client's
  std::string shape;       // "4x5x6": m, n, k
  std::string kernel;
  double seconds = 0;  // from arrival to the status
};

// One structured line with the fields that are not empty, the code's name and
// its message. A fault of the server's (INTERNAL, UNKNOWN, DATA_LOSS) is an
// error, all else info. Of each, at most kFailedRequestLines a second are
// written, so that a flood of refusals costs a lock each and not a line each;
// the first line of the next second says how many were left out.
inline constexpr int kFailedRequestLines = 20;
void LogFailedRequest(const FailedRequest& request, const absl::Status& status);

// A line of gRPC's own, limited in the same way: a client's bad connections can
// make it write thousands a second.
void LogGrpc(LogLevel level, absl::string_view detail, absl::string_view at);

// Why a kernel's launch failed, which clients are not told: an error, limited
// in the same way.
void LogFailedLaunch(absl::string_view kernel, int device,
                     const absl::Status& status);

}  // namespace gemmd
