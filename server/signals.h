// The signals of the program gemmd.

#pragma once

#include <functional>

namespace gemmd {

// What the first SIGTERM or SIGINT does, and each SIGHUP. Called on a thread
// that signals have to themselves, so they may block and log.
struct SignalActions {
  std::function<void()> stop;
  std::function<void()> reload;
};

// From now on signals do that; a second SIGTERM or SIGINT ends the process at
// once with 128 + its number, and SIGPIPE is ignored: a closed socket or pipe
// is an error code. Once a process; ends it if there is no pipe to be had.
void FollowSignals(SignalActions actions);

}  // namespace gemmd
