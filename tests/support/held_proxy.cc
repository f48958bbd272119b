#include "tests/support/held_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gemmd::testing {
namespace {

// A unix socket's if it has a path, else of loopback.
struct Address {
  Address(int port, const std::string& path) : unix_() {
    if (path.empty()) {
      in.sin_family = AF_INET;
      in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      in.sin_port = htons(port);
    } else {
      size = sizeof(unix_);
      unix_.sun_family = AF_UNIX;
      path.copy(unix_.sun_path, sizeof(unix_.sun_path) - 1);
    }
  }
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(this); }

  union {
    sockaddr_un unix_;
    sockaddr_in in;
  };
  socklen_t size = sizeof(in);
};

int NewSocket(const std::string& path) {
  return socket(path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC,
                0);
}

}  // namespace

HeldProxy::HeldProxy(Options options)
    : options_(std::move(options)), listener_(NewSocket(options_.path)) {
  Address address(0, options_.path);
  if (!options_.path.empty()) unlink(options_.path.c_str());
  if (bind(listener_, address.generic(), address.size) == 0 &&
      listen(listener_, 1) == 0 &&
      getsockname(listener_, address.generic(), &address.size) == 0) {
    port_ = ntohs(address.in.sin_port);
  }
  thread_ = std::thread([this] { Run(); });
}

HeldProxy::~HeldProxy() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void HeldProxy::Run() {
  while (true) {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    reading_ = true;
    const int server = NewSocket(options_.to_path);
    Address address(options_.to_port, options_.to_path);
    if (connect(server, address.generic(), address.size) == 0) {
      Forward(client, server);
    }
    close(client);
    close(server);
  }
}

void HeldProxy::Forward(int client, int server) {
  std::vector<char> buffer(64 << 10);
  size_t passed = 0;
  while (!stopping_ && !cut_.exchange(false)) {
    const size_t may_pass =
        released_ ? buffer.size()
                  : std::min(buffer.size(), options_.pass_bytes - passed);
    holds_ = may_pass == 0;
    const short from_client = may_pass > 0 ? POLLIN : 0;  // NOLINT: poll's type
    const short from_server = reading_ ? POLLIN : 0;      // NOLINT: likewise
    pollfd fds[] = {{client, from_client, 0}, {server, from_server, 0}};
    poll(fds, 2, 10);
    if (((fds[0].revents | fds[1].revents) & (POLLHUP | POLLERR)) != 0) return;
    if ((fds[0].revents & POLLIN) != 0) {
      const ssize_t count = read(client, buffer.data(), may_pass);
      if (count <= 0 || send(server, buffer.data(), count, MSG_NOSIGNAL) < 0) {
        return;
      }
      passed += count;
    }
    if ((fds[1].revents & POLLIN) != 0) {
      const ssize_t count = read(server, buffer.data(), buffer.size());
      if (count <= 0 || send(client, buffer.data(), count, MSG_NOSIGNAL) < 0) {
        return;
      }
    }
  }
}

}  // namespace gemmd::testing
