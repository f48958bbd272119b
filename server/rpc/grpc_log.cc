#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/observe/event_log.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

std::atomic<int> g_quiet{0};

void OnGrpcLog(gpr_log_func_args* line) {
  const std::string at = absl::StrCat(line->file, ":", line->line);
  // The next step of gRPC's is then to abort the process.
  if (absl::StartsWith(line->message, "assertion failed")) {
    Log(LogLevel::kError, "grpc", {{"detail", line->message}, {"at", at}});
    FlushLog(std::chrono::milliseconds(100));
    return;
  }
  const bool error =
      line->severity == GPR_LOG_SEVERITY_ERROR && g_quiet.load() == 0;
  LogGrpc(error ? LogLevel::kWarn : LogLevel::kDebug, line->message, at);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(OnGrpcLog); }

QuietGrpcLog::QuietGrpcLog() { ++g_quiet; }
QuietGrpcLog::~QuietGrpcLog() { --g_quiet; }

}  // namespace gemmd
