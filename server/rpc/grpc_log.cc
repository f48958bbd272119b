#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

void OnGrpcLog(gpr_log_func_args* line) {
  const bool error = line->severity == GPR_LOG_SEVERITY_ERROR;
  Log(error ? LogLevel::kWarn : LogLevel::kDebug, "grpc",
      {{"detail", line->message},
       {"at", absl::StrCat(line->file, ":", line->line)}});
  // gRPC's next step may be to abort the process.
  if (error) FlushLog(std::chrono::milliseconds(100));
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(OnGrpcLog); }

}  // namespace gemmd
