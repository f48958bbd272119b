#include "server/rpc/goodbye.h"

#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <vector>

namespace gemmd {
namespace {

// How long a client has to close a connection on which nothing happens.
constexpr MonotonicDuration kPatience = std::chrono::milliseconds(100);
constexpr MonotonicDuration kPause = std::chrono::milliseconds(2);

}  // namespace

void EndConnections(const ServerAddress& address, MonotonicTime deadline) {
  for (const int fd : FindListeners(address)) {
    shutdown(fd, SHUT_RDWR);
  }
  const MonotonicTime patient_until = MonotonicClock::now() + kPatience;
  for (;;) {
    // Each time all of them: one may have been accepted a moment ago.
    const std::vector<int> connections = FindConnections(address);
    bool sending = false;
    for (const int fd : connections) {
      shutdown(fd, SHUT_WR);
      sending = sending || BytesOnTheirWay(fd) > 0;
    }
    const MonotonicTime now = MonotonicClock::now();
    if (connections.empty() || now >= deadline ||
        (now >= patient_until && !sending)) {
      for (const int fd : connections) shutdown(fd, SHUT_RDWR);
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace gemmd
