// gemmd with as many CPU devices as --devices names, for the scripts that
// compare several devices with one where there is no GPU.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include "server/observe/logging.h"
#include "server/options.h"
#include "server/server.h"
#include "server/signals.h"
#include "tests/support/faulty_backend.h"

namespace gemmd {
namespace {

Server* g_server = nullptr;

int Main(int argc, char** argv) {
  // gemmd takes no --devices with --backend cpu.
  for (int i = 2; i < argc; ++i) {
    static char any[] = "auto";
    if (std::string_view(argv[i - 1]) == "--backend") argv[i] = any;
  }
  auto line = ParseCommandLine(argc, argv);
  if (!line.ok()) {
    std::fprintf(stderr, "%s\n", line.status().ToString().c_str());
    return 2;
  }
  ServerOptions& options = line->options;
  const int devices = std::max(1, static_cast<int>(options.devices.size()));
  options.devices.clear();
  options.backend = "cpu";
  if (!InitLogging(options.log_level, options.log_format).ok()) return 2;
  auto server = Server::Start(
      options,
      [&](const BackendOptions& backend, const KernelRegistry& registry)
          -> absl::StatusOr<std::unique_ptr<Backend>> {
        return testing::FaultyBackend::Create(backend, registry, devices);
      });
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  g_server = server->get();
  FollowSignals({[] { g_server->RequestShutdown(); }, [] {}});
  std::printf("%s", (*server)->ListeningLines().c_str());
  std::fflush(stdout);
  (*server)->Wait();
  return (*server)->Shutdown().ok() ? 0 : 3;
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) { return gemmd::Main(argc, argv); }
