#include "tests/support/http_get.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace gemmd::testing {

int ConnectLoopback(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    close(fd);
    return -1;
  }
  return fd;
}

HttpReply HttpRequest(int port, const std::string& method,
                      const std::string& path) {
  HttpReply reply;
  const int fd = ConnectLoopback(port);
  if (fd < 0) return reply;
  const std::string request =
      method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::string answer;
  if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char chunk[16384];
    ssize_t count;
    while ((count = recv(fd, chunk, sizeof(chunk), 0)) > 0) {
      answer.append(chunk, static_cast<size_t>(count));
    }
  }
  close(fd);
  const size_t head_end = answer.find("\r\n\r\n");
  if (head_end == std::string::npos) return reply;
  reply.headers = answer.substr(0, head_end);
  reply.body = answer.substr(head_end + 4);
  reply.status = std::atoi(answer.c_str() + answer.find(' ') + 1);
  return reply;
}

}  // namespace gemmd::testing
