// Lines of things that happen often: requests that ended, launches that failed,
// what gRPC complains of. Limited, so that a flood of them costs a lock each
// and not a line each.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/observe/logging.h"
#include "server/schedule/task.h"

namespace gemmd {

// Of each kind of line, at most so many a second are written; the first one of
// the next second says how many were left out (left_out_before).
inline constexpr int kLimitedLines = 20;

// What is worth knowing of a request that ended; empty: not known.
struct EndedRequest {
  // How a product's task ended.
  struct Run {
    int device = 0;
    int batch_size = 1;
    StageSeconds seconds;
    double encode_seconds = 0;
  };

  absl::string_view method;  // "gemmd.v1.GemmService/Sgemm"
  std::string client;        // a name or a digest, never a secret
  std::string trace_id;      // the client's, W3C trace context
  std::string span_id;
  std::string request_id;  // the client's
  std::string shape;       // "4x5x6": m, n, k
  std::string kernel;
  std::optional<Run> run;
  double seconds = 0;  // from arrival to the status
};

// Whether LogRequest would write: to be asked before an EndedRequest is made,
// so that requests that end well cost nothing.
bool IsRequestLogged(const absl::Status& status);

// One line with the fields that are not empty, the code's name and its message.
// A fault of the server's (INTERNAL, UNKNOWN, DATA_LOSS) is an error and any
// other failure info, both limited; what ended well is debug. While debug is on
// every request has its line.
void LogRequest(const EndedRequest& request, const absl::Status& status);

// A line of gRPC's own: a client's bad connections can make it write thousands
// a second.
void LogGrpc(LogLevel level, absl::string_view detail, absl::string_view at);

// Why a kernel's launch failed, which clients are not told: an error.
void LogFailedLaunch(absl::string_view kernel, int device,
                     const absl::Status& status);

}  // namespace gemmd
