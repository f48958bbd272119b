#include "server/start_log.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/listen_address.h"
#include "server/observe/build_info.h"
#include "server/observe/logging.h"

namespace gemmd {

void LogStarting() {
  Log(LogLevel::kInfo, "starting",
      {{"version", std::string(BuildVersion())},
       {"revision", std::string(BuildRevision())},
       {"cuda", std::string(BuildCuda())}});
}

void LogUnavailableKernels(const KernelRegistry& registry) {
  std::map<std::string, std::vector<std::string>> kernels_by_reason;
  for (const KernelEntry& entry : registry.entries()) {
    if (entry.kernel != nullptr) continue;
    const std::string& reason = entry.unavailable_detail.empty()
                                    ? entry.unavailable_reason
                                    : entry.unavailable_detail;
    kernels_by_reason[reason].push_back(entry.info.name);
  }
  for (const auto& [reason, kernels] : kernels_by_reason) {
    Log(LogLevel::kInfo, "kernels not available",
        {{"reason", reason}, {"kernels", absl::StrJoin(kernels, ",")}});
  }
}

void LogDeviceReady(absl::string_view backend, const DeviceInfo& info,
                    MonotonicDuration warm_up) {
  Log(LogLevel::kInfo, "device ready",
      {{"backend", std::string(backend)},
       {"device", absl::StrCat(info.index)},
       {"name", info.name},
       {"streams", absl::StrCat(info.streams)},
       {"warm_up_seconds", absl::StrFormat("%.3f", Seconds(warm_up))}});
}

std::string ListeningLines(const ServerOptions& options, int grpc_port,
                           int http_port) {
  std::string lines;
  const auto add = [&lines](absl::string_view what, const std::string& address,
                            int port) {
    if (address.empty()) return;
    absl::StrAppend(&lines, what, " listening on ",
                    ParseListenAddress(address)->WithPort(port), "\n");
  };
  add("grpc", options.listen, grpc_port);
  if (!options.unix_socket.empty()) {
    absl::StrAppend(&lines, "grpc listening on unix:", options.unix_socket,
                    "\n");
  }
  add("http", options.http_listen, http_port);
  return lines;
}

}  // namespace gemmd
