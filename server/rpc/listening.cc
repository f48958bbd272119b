#include "server/rpc/listening.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

std::string Reason(int error) { return std::system_category().message(error); }

// errno of binding and listening there; 0 if that works now.
int BindError(const addrinfo& address) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd, address.ai_addr, address.ai_addrlen) != 0) return errno;
  return listen(fd, 1) == 0 ? 0 : errno;
}

}  // namespace

absl::Status CheckUnixSocketPath(const std::string& path) {
  sockaddr_un address = {};
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the unix socket's path has ", path.size(), " bytes; at most ",
        sizeof(address.sun_path) - 1, " fit a socket address"));
  }
  const size_t slash = path.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot listen on unix:", path, ": no file can be made in ", folder,
        ": ", Reason(errno), " (--unix-socket)"));
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on unix:", path,
                     ": something else than a socket is there"));
  }
  // Does not wait for a program that is stopped.
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int failed =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  const int error = failed == 0 ? 0 : errno;
  // Left over from a process that is gone.
  if (error == ECONNREFUSED) return absl::OkStatus();
  const bool in_use = error == 0 || error == EAGAIN;
  return absl::UnavailableError(
      absl::StrCat("cannot listen on unix:", path, ": ",
                   in_use ? "another program does already" : Reason(error)));
}

absl::Status CheckTcpAddress(const std::string& address) {
  const auto error = [&](absl::string_view reason) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ", reason,
                     "; choose another address with --listen (port 0 takes a "
                     "free one)"));
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return error("HOST:PORT is wanted");
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                 port.c_str(), &hints, &found);
  if (failed != 0) return error(gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 &freeaddrinfo);
  // gRPC is content with one of several addresses of a name.
  int reason = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    reason = BindError(*a);
    if (reason == 0) return absl::OkStatus();
  }
  return error(Reason(reason));
}

}  // namespace gemmd
