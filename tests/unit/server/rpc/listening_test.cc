// What a server listens on, and what it must not take from others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/server/rpc/service_fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

TEST_F(ServiceTest, APortInUseIsUnavailableAndNamed) {
  StartServer();
  RpcOptions options;
  options.listen = absl::StrCat("127.0.0.1:", server_->port());
  const auto second = TryStart(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on ", options.listen,
                                     ": Address already in use")));
  EXPECT_TRUE(Multiply().ok());  // the first goes on
}

TEST_F(ServiceTest, ThePortIsSharedWithNobody) {
  StartServer();
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(server_->port());
  EXPECT_NE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  close(fd);
}

TEST_F(ServiceTest, AnAddressOfAnotherMachineIsUnavailable) {
  RpcOptions options;
  options.listen = "192.0.2.1:0";
  const auto server = TryStart(options);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("192.0.2.1:0"));
}

TEST_F(ServiceTest, OptionsOutOfRangeAreRefused) {
  RpcOptions options;
  options.listen = "127.0.0.1:0";
  options.max_inline_bytes = size_t{4} << 30;
  EXPECT_EQ(TryStart(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  options.max_inline_bytes = size_t{256} << 20;
  options.receive_bytes = size_t{511} << 20;
  const absl::Status small = TryStart(options).status();
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(small.message()),
      HasSubstr(absl::StrCat("--max-inline-bytes is 268435456; at most ",
                             size_t{511} << 19)));
  options = {.listen = ""};
  EXPECT_EQ(TryStart(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, ListensOnAUnixSocketToo) {
  RpcOptions options;
  options.unix_socket = SocketPath();
  StartServer(options);
  EXPECT_TRUE(Multiply().ok());
  stub_ =
      v1::GemmService::NewStub(Connect(absl::StrCat("unix:", SocketPath())));
  EXPECT_TRUE(Multiply().ok());
}

TEST_F(ServiceTest, AUnixSocketInUseIsNotTakenAway) {
  RpcOptions options;
  options.unix_socket = SocketPath();
  StartServer(options);
  options.listen = "";
  const auto second = TryStart(options);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another program does already"));
  stub_ =
      v1::GemmService::NewStub(Connect(absl::StrCat("unix:", SocketPath())));
  EXPECT_TRUE(Multiply().ok());
}

TEST_F(ServiceTest, AUnixSocketOfAStoppedProgramIsInUseToo) {
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  SocketPath().copy(address.sun_path, sizeof(address.sun_path) - 1);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  ASSERT_EQ(bind(listener, generic, sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  // Nobody accepts, until no more connections are taken.
  std::vector<int> waiting;
  do {
    waiting.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(waiting.back(), generic, sizeof(address)) == 0);
  ASSERT_EQ(errno, EAGAIN);

  RpcOptions options;
  options.listen = "";
  options.unix_socket = SocketPath();
  const absl::Status status = TryStart(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("another program does already"));
  for (const int fd : waiting) close(fd);
  close(listener);
}

TEST_F(ServiceTest, ALeftOverUnixSocketIsReplaced) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  SocketPath().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  close(fd);
  RpcOptions options;
  options.unix_socket = SocketPath();
  StartServer(options);
  stub_ =
      v1::GemmService::NewStub(Connect(absl::StrCat("unix:", SocketPath())));
  EXPECT_TRUE(Multiply().ok());
}

TEST_F(ServiceTest, AFileIsNotReplacedByAUnixSocket) {
  std::ofstream(SocketPath()) << "precious";
  RpcOptions options;
  options.unix_socket = SocketPath();
  options.listen = "";
  EXPECT_EQ(TryStart(options).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(access(SocketPath().c_str(), F_OK), 0);
  options.unix_socket = std::string(200, 'x');
  EXPECT_EQ(TryStart(options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gemmd
