#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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

// Why gRPC gives up a port, if that is what it says: each of these lines is the
// last that its tcp_server_posix.cc does before it listens no more.
std::optional<absl::string_view> PortLoss(const gpr_log_func_args& line) {
  if (line.severity != GPR_LOG_SEVERITY_ERROR ||
      !absl::EndsWith(line.file, "tcp_server_posix.cc")) {
    return std::nullopt;
  }
  absl::string_view reason = line.message;
  for (const absl::string_view step :
       {"Failed accept4: ", "Failed getsockname: ", "Invalid address: "}) {
    if (!absl::ConsumePrefix(&reason, step)) continue;
    // A socket that was shut down, which is how a server of ours ends.
    static const auto* const kEnded =
        new std::string(std::generic_category().message(EINVAL));
    if (reason == *kEnded) return std::nullopt;
    return reason;
  }
  return std::nullopt;
}

void OnGrpcLog(gpr_log_func_args* line) {
  const std::string at = absl::StrCat(line->file, ":", line->line);
  // The next step of gRPC's is then to abort the process.
  if (absl::StartsWith(line->message, "assertion failed")) {
    Log(LogLevel::kError, "grpc", {{"detail", line->message}, {"at", at}});
    FlushLog(std::chrono::milliseconds(100));
    return;
  }
  if (const auto reason = PortLoss(*line)) PortWatch::TellAll(*reason);
  const bool error =
      line->severity == GPR_LOG_SEVERITY_ERROR && g_quiet.load() == 0;
  LogGrpc(error ? LogLevel::kWarn : LogLevel::kDebug, line->message, at);
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(OnGrpcLog); }

QuietGrpcLog::QuietGrpcLog() { ++g_quiet; }
QuietGrpcLog::~QuietGrpcLog() { --g_quiet; }

PortWatch::PortWatch(Lost lost) : lost_(std::move(lost)) {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  watches.all.push_back(this);
}

PortWatch::~PortWatch() {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  std::erase(watches.all, this);
}

void PortWatch::TellAll(absl::string_view reason) {
  Watches& watches = TheWatches();
  MutexLock lock(&watches.mu);
  for (const PortWatch* watch : watches.all) watch->lost_(reason);
}

}  // namespace gemmd
