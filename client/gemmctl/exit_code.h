// How gemmctl ends.

#pragma once

#include "absl/status/status.h"

namespace gemmd::gemmctl {

// Documented in client/README.md and in `gemmctl --help`: scripts rely on them.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // a failed result: a fault there, an answer not to be kept
  kUsage = 2,        // the command line or a local file is not as it should be
  kUnavailable = 3,  // no server, or one that drains
  kDeadline = 4,     // no answer in time
  kRejected = 5,     // the server refused the request
};

// For an error that came from a server or from the way to it.
ExitCode RemoteExitCode(const absl::Status& status);

// Says what is wrong in one line on stderr and returns `code`.
int Fail(const absl::Status& status, ExitCode code);

// Fail with RemoteExitCode.
int FailRemote(const absl::Status& status);

}  // namespace gemmd::gemmctl
