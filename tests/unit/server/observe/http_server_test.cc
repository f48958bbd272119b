#include "server/observe/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::ConnectLoopback;
using ::testing::HasSubstr;
using testing::HttpGet;
using testing::HttpReply;
using testing::HttpRequest;

std::unique_ptr<HttpServer> StartServer() {
  auto server = HttpServer::Start(
      "127.0.0.1:0",
      {{"/metrics",
        [] {
          return HttpResponse{.content_type = "text/plain; version=0.0.4",
                              .body = "a 1\n"};
        }},
       {"/readyz",
        [] { return HttpResponse{.status = 503, .body = "draining\n"}; }}});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(HttpServerTest, PortZeroPicksAFreePortAndAnswersTheHandlers) {
  const auto server = StartServer();
  ASSERT_GT(server->port(), 0);
  const HttpReply metrics = HttpGet(server->port(), "/metrics?name=x");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(metrics.body, "a 1\n");
  EXPECT_THAT(metrics.headers,
              HasSubstr("Content-Type: text/plain; version=0.0.4"));
  const HttpReply ready = HttpGet(server->port(), "/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "draining\n");
}

TEST(HttpServerTest, UnknownPathsAndMethodsAreRefused) {
  const auto server = StartServer();
  const HttpReply missing = HttpGet(server->port(), "/etc/passwd");
  EXPECT_EQ(missing.status, 404);
  EXPECT_THAT(missing.body, HasSubstr("/metrics"));
  EXPECT_EQ(HttpGet(server->port(), "/../../etc/passwd").status, 404);
  EXPECT_EQ(HttpRequest(server->port(), "POST", "/metrics").status, 405);
  EXPECT_EQ(HttpRequest(server->port(), "DELETE", "/metrics").status, 405);
  const HttpReply head = HttpRequest(server->port(), "HEAD", "/metrics");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.headers, HasSubstr("Content-Length: 4"));
}

TEST(HttpServerTest, AUsedPortIsAnErrorThatNamesIt) {
  const auto first = StartServer();
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  const auto second = HttpServer::Start(address, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(address));
  EXPECT_THAT(second.status().message(), HasSubstr("address already in use"));
  EXPECT_EQ(HttpGet(first->port(), "/metrics").status, 200);
}

int OpenDescriptors() {
  using std::filesystem::directory_iterator;
  return static_cast<int>(
      std::distance(directory_iterator("/proc/self/fd"), directory_iterator()));
}

TEST(HttpServerTest, SilentConnectionsPastTheLimitAreNotAccepted) {
  constexpr int kSilent = 300;
  const auto server = StartServer();
  const int before = OpenDescriptors();
  std::vector<int> silent;
  for (int i = 0; i < kSilent; ++i) {
    silent.push_back(ConnectLoopback(server->port()));
    ASSERT_GE(silent.back(), 0);
  }
  // The server's ends are in this process too.
  const auto accepted = [&] { return OpenDescriptors() - before - kSilent; };
  for (int i = 0; i < 200 && accepted() < 256; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(accepted(), 256);
  // Some turns of its loop, before the first are dropped for being silent.
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(accepted(), 256);
  for (const int fd : silent) close(fd);
  EXPECT_EQ(HttpGet(server->port(), "/metrics").status, 200);
}

// As many as it holds, opened anew as soon as one is dropped.
TEST(HttpServerTest, SilentConnectionsPastTheLimitDoNotKeepAProbeOut) {
  const auto server = StartServer();
  std::atomic<bool> stop = false;
  std::thread crowd([&] {
    std::deque<int> silent;
    while (!stop) {
      silent.push_back(ConnectLoopback(server->port()));
      if (silent.size() > 300) {
        close(silent.front());
        silent.pop_front();
      }
      if (silent.size() == 300) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    for (const int fd : silent) close(fd);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(HttpGet(server->port(), "/metrics").status, 200);
    // Less than a silent connection is given.
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(3));
  }
  stop = true;
  crowd.join();
}

TEST(HttpServerTest, AnAddressOfAnotherMachineIsAnError) {
  for (const char* address : {"192.0.2.1:0", "no-such-host.invalid:0"}) {
    const auto server = HttpServer::Start(address, {});
    ASSERT_FALSE(server.ok());
    EXPECT_THAT(server.status().message(), HasSubstr(address));
    EXPECT_THAT(server.status().message(),
                HasSubstr("name an address of this machine"));
  }
}

TEST(HttpServerTest, SilentConnectionsDoNotKeepOthersFromAnswers) {
  const auto server = StartServer();
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(ConnectLoopback(server->port()));
  }
  EXPECT_EQ(HttpGet(server->port(), "/metrics").status, 200);
  for (const int fd : silent) close(fd);
}

TEST(HttpServerTest, AnAnswerPastTheSocketsBufferArrivesWhole) {
  const std::string body(16 << 20, 'x');
  const auto server = HttpServer::Start(
      "127.0.0.1:0",
      {{"/metrics", [&body] { return HttpResponse{.body = body}; }}});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(HttpGet((*server)->port(), "/metrics").body.size(), body.size());
}

TEST(HttpServerTest, AnswersThatAreNotReadKeepNobodyOut) {
  const std::string body(16 << 20, 'x');
  const auto server = HttpServer::Start(
      "127.0.0.1:0",
      {{"/metrics", [&body] { return HttpResponse{.body = body}; }},
       {"/livez", [] { return HttpResponse{.body = "ok"}; }}});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  std::vector<int> unread;
  for (int i = 0; i < 10; ++i) {
    unread.push_back(ConnectLoopback((*server)->port()));
    ASSERT_EQ(send(unread.back(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
  }
  EXPECT_EQ(HttpGet((*server)->port(), "/livez").body, "ok");
  EXPECT_EQ(HttpGet((*server)->port(), "/metrics").body.size(), body.size());
  for (const int fd : unread) close(fd);
}

TEST(HttpServerTest, ARequestInPiecesIsAnswered) {
  const auto server = StartServer();
  const int fd = ConnectLoopback(server->port());
  for (const std::string& piece :
       {std::string("GET /metr"), std::string("ics HTTP/1.1\r\nHost: x\r"),
        std::string("\n\r\n")}) {
    ASSERT_EQ(send(fd, piece.data(), piece.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(piece.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  char bytes[512];
  const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
  ASSERT_GT(count, 0);
  EXPECT_THAT(std::string(bytes, count), HasSubstr("200 OK"));
  close(fd);
}

TEST(HttpServerTest, BytesThatAreNotHttpLeaveTheServerUnharmed) {
  const auto server = StartServer();
  for (const std::string& bytes :
       {std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string(70000, 'x'), std::string("\0\1\2\r\n\r\n", 7)}) {
    const int fd = ConnectLoopback(server->port());
    send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(fd);
  }
  EXPECT_EQ(HttpGet(server->port(), "/metrics").status, 200);
}

TEST(HttpServerTest, ThePortIsFreeAfterDestruction) {
  auto server = StartServer();
  const int port = server->port();
  server.reset();
  EXPECT_EQ(ConnectLoopback(port), -1);
  EXPECT_TRUE(HttpServer::Start(absl::StrCat("127.0.0.1:", port), {}).ok());
}

}  // namespace
}  // namespace gemmd
