#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/mutex.h"
#include "server/observe/event_log.h"
#include "server/observe/logging.h"

namespace gemmd {
namespace {

std::atomic<int> g_quiet{0};

struct Watches {
  Mutex mu;
  std::vector<PortWatch*> all ABSL_GUARDED_BY(mu);
};

// Never destroyed: gRPC's threads may log while the process exits.
Watches& TheWatches() {
  static auto* watches = new Watches;
  return *watches;
}

void OnGrpcLog(gpr_log_func_args* line) {
  const std::string at = absl::StrCat(line->file, ":", line->line);
  // The next step of gRPC's is then to abort the process.
  if (absl::StartsWith(line->message, "assertion failed")) {
    Log(LogLevel::kError, "grpc", {{"detail", line->message}, {"at", at}});
    FlushLog(std::chrono::milliseconds(100));
    return;
  }
  // Not every failed accept: the end of a server makes some, too.
  if (absl::StartsWith(line->message, "Failed accept4: Too many open files")) {
    PortWatch::TellAll();
  }
  const bool error =
      line->severity == GPR_LOG_SEVERITY_ERROR && g_quiet.load() == 0;
  LogGrpc(error ? LogLevel::kWarn : LogLevel::kDebug, line->message, at);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(OnGrpcLog); }

QuietGrpcLog::QuietGrpcLog() { ++g_quiet; }
QuietGrpcLog::~QuietGrpcLog() { --g_quiet; }

PortWatch::PortWatch(std::function<void()> lost) : lost_(std::move(lost)) {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  watches.all.push_back(this);
}

PortWatch::~PortWatch() {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  std::erase(watches.all, this);
}

void PortWatch::TellAll() {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  for (const PortWatch* watch : watches.all) watch->lost_();
}

}  // namespace gemmd
