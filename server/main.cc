// The program gemmd. Exit codes: 0 stopped as asked, 1 could not start, 2 bad
// flags, 3 a device or the port was lost, 128 + n a second signal n.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <string>

#include "server/file_limit.h"
#include "server/observe/logging.h"
#include "server/options.h"
#include "server/rpc/malloc_settings.h"
#include "server/server.h"
#include "server/signals.h"
#include "server/tune.h"

namespace {

enum ExitCode { kOk = 0, kCannotStart = 1, kUsage = 2, kFault = 3 };

// Never destroyed: the signal thread may be calling it at any time.
std::atomic<gemmd::Server*> g_server{nullptr};

void Stop() {
  gemmd::Server* server = g_server.load();
  if (server == nullptr) {
    std::cerr << "gemmd: asked to stop before it was ready" << std::endl;
    _exit(kOk);  // nothing has been served yet
  }
  server->RequestShutdown();
}

// The same command line, with its environment and file as they are now.
void Reload(int argc, char** argv) {
  gemmd::Server* server = g_server.load();
  const auto line = gemmd::ParseCommandLine(argc, argv);
  if (!line.ok()) {
    gemmd::Log(gemmd::LogLevel::kError, "not read anew",
               {{"reason", std::string(line.status().message())}});
  } else if (server != nullptr) {
    server->Reload(line->options.log_level);
  }
}

int Fail(const absl::Status& status, ExitCode code) {
  std::cerr << "gemmd: " << gemmd::OneLine(status.message()) << std::endl;
  return code;
}

// False, said on stderr, where stdout takes no more, as on a full disk.
bool Print(const std::string& text) {
  std::cout << text << std::flush;
  if (std::cout.good()) return true;
  Fail(absl::UnknownError("what belongs on stdout could not be written"),
       kCannotStart);
  return false;
}

ExitCode CodeOf(const absl::Status& failed_start) {
  return absl::IsInvalidArgument(failed_start) ? kUsage : kCannotStart;
}

// A stream that was closed would be the next file to be opened: the server's
// own pipe for signals, say, into which its log would then go.
void HoldStandardStreams() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", O_RDWR) != fd) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  HoldStandardStreams();
  gemmd::ConfigureMalloc();
  gemmd::RaiseFileLimit();
  gemmd::FollowSignals({Stop, [=] { Reload(argc, argv); }});
  const auto line = gemmd::ParseCommandLine(argc, argv);
  if (!line.ok()) return Fail(line.status(), kUsage);
  if (line->exit) return Print(line->output) ? kOk : kCannotStart;
  const absl::Status logging =
      gemmd::InitLogging(line->options.log_level, line->options.log_format);
  if (!logging.ok()) return Fail(logging, kUsage);
  if (line->options.tune) {
    const absl::Status tuned = gemmd::RunTune(line->options, std::cout);
    return tuned.ok() ? kOk : Fail(tuned, CodeOf(tuned));
  }
  auto server = gemmd::Server::Start(line->options);
  if (!server.ok()) {
    return Fail(server.status(), CodeOf(server.status()));
  }
  g_server.store(server->release());
  (void)Print(g_server.load()->ListeningLines());
  g_server.load()->Wait();
  const absl::Status ended = g_server.load()->Shutdown();
  if (ended.ok()) return kOk;
  Fail(ended, kFault);
  gemmd::FlushLog();
  // What runs at exit may wait for the device, for ever.
  _exit(kFault);
}
