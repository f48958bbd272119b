// gemmctl: a gemmd server at the command line. `gemmctl --help` tells more.

#include <fcntl.h>
#include <stdlib.h>  // setenv
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"
#include "client/gemmctl/command_line.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"

namespace gemmd::gemmctl {
namespace {

// A stream that was closed would be the next file or connection to be opened.
// What is written to one fails, as it would have.
void HoldStandardStreams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

int Run(int argc, const char* const* argv) {
  // What is wrong is said in one line, and that is ours.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  const absl::StatusOr<CommandLine> line = ParseCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status(), kUsage);
  switch (line->command) {
    case Command::kPrint:
      std::fputs(line->text.c_str(), stdout);
      return kOk;
    case Command::kMultiply:
      return RunMultiply(*line);
    case Command::kBench:
      return RunBench(*line);
    case Command::kInfo:
      return RunInfo(*line);
    case Command::kKernels:
      return RunKernels(*line);
    case Command::kHealth:
      return RunHealth(*line);
    case Command::kUpload:
      return RunUpload(*line);
    case Command::kDownload:
      return RunDownload(*line);
    case Command::kMatrices:
      return RunMatrices(*line);
    case Command::kDelete:
      return RunDelete(*line);
    case Command::kToken:
      return RunToken(*line);
  }
  return kUsage;
}

int Main(int argc, const char* const* argv) {
  HoldStandardStreams();
  int code = kOk;
  try {
    code = Run(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail(absl::ResourceExhaustedError(
                    "the matrices do not fit in this machine's memory"),
                kUsage);
  }
  // A result that nobody could read is none.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && code == kOk) {
    return Fail(absl::DataLossError(absl::StrCat("cannot write to stdout: ",
                                                 std::strerror(errno))),
                kFailed);
  }
  return code;
}

}  // namespace
}  // namespace gemmd::gemmctl

int main(int argc, char** argv) { return gemmd::gemmctl::Main(argc, argv); }
