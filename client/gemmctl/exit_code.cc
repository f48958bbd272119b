#include "client/gemmctl/exit_code.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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
  // What a server or a file's name puts into a message must neither end the
  // line nor speak to the terminal.
  std::string line;
  for (const char c : status.message()) {
    if (c == '\n') {
      line += ' ';
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&line, "\\x%02x", c);
    } else {
      line += c;
    }
  }
  std::fprintf(stderr, "gemmctl: %s\n", line.c_str());
  return code;
}

int FailRemote(const absl::Status& status) {
  std::string hint;
  if (absl::IsUnauthenticated(status)) {
    hint =
        "; say who you are with --token-file, or with --tls-cert and --tls-key "
        "(a new entry of the server's --auth-token-file counts after SIGHUP)";
  } else if (absl::IsPermissionDenied(status)) {
    hint = "; whoever runs the server gives roles, in its --auth-token-file";
  }
  return Fail(absl::Status(status.code(), absl::StrCat(status.message(), hint)),
              RemoteExitCode(status));
}

}  // namespace gemmd::gemmctl
