#include "client/gemmctl/exit_code.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_replace.h"

namespace gemmd::gemmctl {

ExitCode RemoteExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return kDeadline;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return kFailed;
    default:
      return kRejected;
  }
}

int Fail(const absl::Status& status, ExitCode code) {
  const std::string line =
      absl::StrReplaceAll(status.message(), {{"\r", ""}, {"\n", " "}});
  std::fprintf(stderr, "gemmctl: %s\n", line.c_str());
  return code;
}

int FailRemote(const absl::Status& status) {
  return Fail(status, RemoteExitCode(status));
}

}  // namespace gemmd::gemmctl
