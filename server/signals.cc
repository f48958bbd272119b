#include "server/signals.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>
#include <utility>

namespace gemmd {
namespace {

// From the handler to the signal thread. Not sigwait: a library that starts
// threads before main does not block signals there.
int g_signals[2];

void OnSignal(int signal) {
  const char byte = static_cast<char>(signal);
  if (write(g_signals[1], &byte, 1) != 1) _exit(128 + signal);
}

void Follow(const SignalActions& actions) {
  bool stopping = false;
  for (char signal; read(g_signals[0], &signal, 1) == 1;) {
    if (signal == SIGHUP) {
      actions.reload();
    } else if (std::exchange(stopping, true)) {
      _exit(128 + signal);
    } else {
      actions.stop();
    }
  }
}

}  // namespace

void FollowSignals(SignalActions actions) {
  if (pipe(g_signals) != 0) std::abort();
  std::thread([actions = std::move(actions)] { Follow(actions); }).detach();
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int n : {SIGTERM, SIGINT, SIGHUP}) sigaction(n, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

}  // namespace gemmd
