// gemmctl: a gemmd server at the command line. `gemmctl --help` tells more.

#include <stdlib.h>  // setenv

#include <cstdio>

#include "client/gemmctl/command_line.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"

namespace gemmd::gemmctl {
namespace {

int Main(int argc, const char* const* argv) {
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

}  // namespace
}  // namespace gemmd::gemmctl

int main(int argc, char** argv) { return gemmd::gemmctl::Main(argc, argv); }
