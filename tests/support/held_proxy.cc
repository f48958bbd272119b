#include "tests/support/held_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace gemmd::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

HeldProxy::HeldProxy(int to_port, size_t pass_bytes)
    : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, generic, size) == 0 && listen(listener_, 1) == 0 &&
      getsockname(listener_, generic, &size) == 0) {
    port_ = ntohs(address.sin_port);
  }
  thread_ = std::thread([=, this] { Run(to_port, pass_bytes); });
}

HeldProxy::~HeldProxy() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void HeldProxy::Run(int to_port, size_t pass_bytes) {
  const int client = accept(listener_, nullptr, nullptr);
  if (client < 0) return;
  const int server = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = Loopback(to_port);
  if (connect(server, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    Forward(client, server, pass_bytes);
  }
  close(client);
  close(server);
}

void HeldProxy::Forward(int client, int server, size_t pass_bytes) {
  std::vector<char> buffer(64 << 10);
  size_t passed = 0;
  while (!stopping_) {
    const size_t may_pass = released_
                                ? buffer.size()
                                : std::min(buffer.size(), pass_bytes - passed);
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
