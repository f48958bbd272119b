#include "server/rpc/goodbye.h"

#include <dirent.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"

namespace gemmd {
namespace {

// How long a client has to close a connection on which nothing happens.
constexpr MonotonicDuration kPatience = std::chrono::milliseconds(100);
constexpr MonotonicDuration kPause = std::chrono::milliseconds(2);

struct Address {
  int port;
  const std::string& unix_socket;
};

bool IsBoundTo(int fd, const Address& address) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  auto* generic = reinterpret_cast<sockaddr*>(&bound);
  if (getsockname(fd, generic, &size) != 0) return false;
  switch (bound.ss_family) {
    case AF_INET:
      return address.port != 0 &&
             ntohs(reinterpret_cast<sockaddr_in*>(generic)->sin_port) ==
                 address.port;
    case AF_INET6:
      return address.port != 0 &&
             ntohs(reinterpret_cast<sockaddr_in6*>(generic)->sin6_port) ==
                 address.port;
    case AF_UNIX:
      return !address.unix_socket.empty() &&
             address.unix_socket ==
                 reinterpret_cast<sockaddr_un*>(generic)->sun_path;
    default:
      return false;
  }
}

bool Listens(int fd) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
         listens != 0;
}

bool IsConnected(int fd) {
  sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

// The process's sockets there of one of the two kinds.
std::vector<int> FindSockets(const Address& address, bool (*is_kind)(int)) {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> fds(opendir("/proc/self/fd"),
                                                closedir);
  if (fds == nullptr) return found;
  // The directory is this thread's alone.
  while (const dirent* entry = readdir(fds.get())) {  // NOLINT
    int fd;
    if (absl::SimpleAtoi(entry->d_name, &fd) && IsBoundTo(fd, address) &&
        is_kind(fd)) {
      found.push_back(fd);
    }
  }
  return found;
}

// Bytes that the peer's machine (a unix socket: the peer) does not have yet.
int BytesOnTheirWay(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace

void EndConnections(int port, const std::string& unix_socket,
                    MonotonicTime deadline) {
  const Address address{port, unix_socket};
  for (const int fd : FindSockets(address, Listens)) {
    shutdown(fd, SHUT_RDWR);
  }
  const MonotonicTime patient_until = MonotonicClock::now() + kPatience;
  for (;;) {
    // Each time all of them: one may have been accepted a moment ago.
    const std::vector<int> connections = FindSockets(address, IsConnected);
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
