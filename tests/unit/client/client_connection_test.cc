// Connections: how many, and those that do not come about or break.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gemmd/client.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A port of loopback that nobody listens on, kept taken meanwhile.
class DeadPort {
 public:
  // `port` 0: a free one.
  explicit DeadPort(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int yes = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~DeadPort() { close(fd_); }

  int fd() const { return fd_; }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

TEST(ClientConnectionTest, SpreadsCallsOverItsConnections) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client =
      NewClient({.address = server.address(), .connections = 3});
  const Matrix a = RandomMatrix(2, 2);
  std::atomic<int> answered = 0;
  for (int i = 0; i < 3; ++i) {
    client->SgemmAsync(
        {.a = a.view(), .b = a.view()},
        [&](absl::StatusOr<SgemmAnswer> answer) { answered += answer.ok(); });
  }
  gate.WaitFor(3);
  EXPECT_EQ(server.peers().size(), 3u);
  gate.Open();
  while (answered < 3) absl::SleepFor(absl::Milliseconds(1));
}

TEST(ClientConnectionTest, NoServerAtTheAddressIsSaidBeforeTheDeadline) {
  const DeadPort port;
  const auto client = NewClient({.address = port.address()});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr("no server at " + port.address()),
                    HasSubstr("Connection refused"), HasSubstr("check that")));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST(ClientConnectionTest, AnAddressThatDoesNotAnswerIsSaidBeforeTheDeadline) {
  DeadPort port;  // listens now, but speaks to nobody
  // Room for every try: the system resets what does not fit.
  ASSERT_EQ(listen(port.fd(), 100), 0);
  const auto client = NewClient({.address = port.address()});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("no server at " + port.address()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST(ClientConnectionTest, NoSocketAtThePathIsSaid) {
  const auto client = NewClient({.address = "unix:/tmp/gemmd_no_such_socket"});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr("no server at unix:/tmp/gemmd_no_such_socket"),
                    HasSubstr("No such file")));
}

// Greets like a server of HTTP/2, opens every window wide, and then reads no
// further, until it is told to or destroyed.
class StalledServer {
 public:
  StalledServer() {
    listen(port_.fd(), 1);
    thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
  }

  const std::string& address() const { return port_.address(); }
  void ReadOn() { read_on_ = true; }

 private:
  void Run(std::stop_token stop) {
    const int fd = accept(port_.fd(), nullptr, nullptr);
    const unsigned char kGreeting[] = {
        // SETTINGS: INITIAL_WINDOW_SIZE 2^30.
        0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x40, 0, 0, 0,
        // WINDOW_UPDATE of the connection by 2^30.
        0, 0, 4, 8, 0, 0, 0, 0, 0, 0x40, 0, 0, 0};
    EXPECT_EQ(write(fd, kGreeting, sizeof kGreeting),
              ssize_t{sizeof kGreeting});
    std::vector<char> sink(1 << 20);
    while (!stop.stop_requested()) {
      if (!read_on_ || recv(fd, sink.data(), sink.size(), MSG_DONTWAIT) <= 0) {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    close(fd);
  }

  DeadPort port_;
  std::atomic<bool> read_on_ = false;
  std::jthread thread_;
};

TEST(ClientConnectionTest, EndsLateOnlyWhileAStalledServerHoldsTheOperands) {
  StalledServer server;
  const auto client = NewClient({.address = server.address()});
  const Matrix a(4000, 4000);  // far more than a socket takes
  absl::Notification ended;
  absl::Status status;
  std::jthread upload([&] {
    status = client
                 ->Upload(a.view(),
                          {.digest = false, .timeout = absl::Milliseconds(300)})
                 .status();
    ended.Notify();
  });
  EXPECT_FALSE(ended.WaitForNotificationWithTimeout(absl::Seconds(1)));
  server.ReadOn();
  EXPECT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// Ends each connection that comes.
class ClosingServer {
 public:
  explicit ClosingServer(int port = 0) : port_(port) {
    EXPECT_EQ(listen(port_.fd(), 8), 0);
    thread_ = std::thread([this] {
      for (int fd; (fd = accept(port_.fd(), nullptr, nullptr)) >= 0;) close(fd);
    });
  }
  ~ClosingServer() {
    shutdown(port_.fd(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& address() const { return port_.address(); }

 private:
  DeadPort port_;
  std::thread thread_;
};

std::string WhyNotHealthy(Client* client) {
  const absl::Status status = client->Health().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  return std::string(status.message());
}

TEST(ClientConnectionTest, AServerThatEndsAllConnectionsMayWantTls) {
  ClosingServer server;
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  EXPECT_THAT(WhyNotHealthy(client.get()),
              AllOf(HasSubstr(server.address()), HasSubstr("starts anew"),
                    HasSubstr("TLS")));
}

TEST(ClientConnectionTest, OneThatHasAnsweredDoesNot) {
  auto server = std::make_unique<FakeServer>(Answer);
  const std::string address = server->address();
  const auto client = NewClient({.address = address, .retry = QuickRetries()});
  ASSERT_TRUE(client->Health().ok());
  server.reset();
  ClosingServer later(std::stoi(address.substr(address.rfind(':') + 1)));
  EXPECT_THAT(WhyNotHealthy(client.get()),
              AllOf(HasSubstr(address), Not(HasSubstr("TLS"))));
}

TEST(ClientConnectionTest, FindsAServerThatComesBack) {
  const Matrix a = RandomMatrix(2, 2);
  auto server = std::make_unique<FakeServer>(Answer);
  const std::string address = server->address();
  const auto client = NewClient({.address = address});
  ASSERT_TRUE(client->Sgemm({.a = a.view(), .b = a.view()}).ok());
  server.reset();
  EXPECT_FALSE(client->Sgemm({.a = a.view(), .b = a.view()}).ok());
  server = std::make_unique<FakeServer>(Answer, address);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(answer.ok()) << answer.status();
}

}  // namespace
}  // namespace gemmd
