#include "server/rpc/own_sockets.h"

#include <dirent.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <memory>

#include "absl/strings/numbers.h"

namespace gemmd {
namespace {

bool IsBoundTo(int fd, const ServerAddress& address) {
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
std::vector<int> FindSockets(const ServerAddress& address,
                             bool (*is_kind)(int)) {
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

}  // namespace

std::vector<int> FindListeners(const ServerAddress& address) {
  return FindSockets(address, Listens);
}

std::vector<int> FindConnections(const ServerAddress& address) {
  return FindSockets(address, IsConnected);
}

int BytesOnTheirWay(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace gemmd
