#include "gemmd/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Answers with `error` as often as said, then as it should.
FakeServer::Handler FailTimes(int times, absl::Status error) {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [left, error](grpc::ServerContext& context,
                       const v1::SgemmRequest& request,
                       v1::SgemmResponse* response) {
    if (left->fetch_sub(1) > 0) return error;
    return Answer(context, request, response);
  };
}

// Answers when the test lets it, or when the client is gone.
class Gate {
 public:
  FakeServer::Handler Handler() {
    return [this](grpc::ServerContext& context, const v1::SgemmRequest& request,
                  v1::SgemmResponse* response) {
      std::unique_lock<std::mutex> lock(mu_);
      ++waiting_;
      changed_.notify_all();
      while (!open_ && !context.IsCancelled()) {
        changed_.wait_for(lock, std::chrono::milliseconds(5));
      }
      --waiting_;
      changed_.notify_all();
      lock.unlock();
      return Answer(context, request, response);
    };
  }
  void WaitFor(int calls) {
    std::unique_lock<std::mutex> lock(mu_);
    changed_.wait(lock, [&] { return waiting_ == calls; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mu_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// A port of loopback that nobody listens on, kept taken meanwhile.
class DeadPort {
 public:
  DeadPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {.sin_family = AF_INET};
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

TEST(ClientTest, BringsTheServersBitsBack) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  // From nothing, over operands that are copied, to ones of many slices.
  for (auto [m, n, k] : {std::array<int, 3>{0, 3, 2},
                         {3, 0, 2},
                         {2, 2, 0},
                         {1, 1, 1},
                         {7, 5, 3},
                         {64, 33, 100},
                         {3, 700, 900}}) {
    const Matrix a = RandomMatrix(m, k);
    const Matrix b = RandomMatrix(k, n);
    const auto answer = client->Sgemm({.a = a.view(), .b = b.view()});
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->c.rows(), m);
    EXPECT_EQ(answer->c.cols(), n);
    EXPECT_TRUE(SameBits(answer->c, Expected(a, b))) << m << n << k;
    EXPECT_EQ(answer->execution.kernel, "fake");
    EXPECT_EQ(answer->attempts, 1);
    EXPECT_GT(answer->elapsed, absl::ZeroDuration());
  }
}

TEST(ClientTest, WorksOverAUnixSocket) {
  const std::string path =
      absl::StrCat("/tmp/gemmd_client_test.", getpid(), ".sock");
  FakeServer server(Answer, "unix:" + path);
  const auto client = NewClient({.address = "unix:" + path});
  const Matrix a = RandomMatrix(40, 50);
  const Matrix b = RandomMatrix(50, 60);
  const auto answer = client->Sgemm({.a = a.view(), .b = b.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(SameBits(answer->c, Expected(a, b)));
}

TEST(ClientTest, WritesIntoTheCallersRowsAndNothingBetweenThem) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(5, 4);
  const Matrix b = RandomMatrix(4, 3);
  std::vector<float> output(40, -7.0f);
  const auto answer = client->Sgemm(
      {.a = a.view(), .b = b.view(), .output = {output.data(), 5, 3, 8}});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->c.data(), nullptr);
  const std::vector<float> expected = Expected(a, b);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(output[i * 8 + j], j < 3 ? expected[i * 3 + j] : -7.0f);
    }
  }
}

TEST(ClientTest, UpdatesCInPlace) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(5, 4);
  const Matrix b = RandomMatrix(4, 3);
  Matrix c(5, 3);
  std::fill_n(c.data(), 15, 10.0f);
  const auto answer = client->Sgemm({.a = a.view(),
                                     .b = b.view(),
                                     .c = c.view(),
                                     .beta = 1.0f,
                                     .output = c.mutable_view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::vector<float> expected = Expected(a, b);
  for (int i = 0; i < 15; ++i) {
    EXPECT_NEAR(c.data()[i], expected[i] + 10.0f, 1e-5f);
  }
}

TEST(ClientTest, RefusesACallThatMakesNoSenseWithoutSendingIt) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 3);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsInvalidArgument(answer.status())) << answer.status();

  absl::Notification refused;
  client->SgemmAsync({.a = a.view(), .b = a.view()},
                     [&](absl::StatusOr<SgemmAnswer> result) {
                       EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
                       refused.Notify();
                     });
  refused.WaitForNotification();
  EXPECT_EQ(server.calls(), 0);
}

TEST(ClientTest, AnswersManyCallsAtOnceFromManyThreads) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .connections = 2});
  std::vector<std::jthread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client, t] {
      const Matrix a = RandomMatrix(3 + t, 40);
      const Matrix b = RandomMatrix(40, 30);
      const std::vector<float> expected = Expected(a, b);
      for (int i = 0; i < 50; ++i) {
        const auto answer = client->Sgemm({.a = a.view(), .b = b.view()});
        ASSERT_TRUE(answer.ok()) << answer.status();
        EXPECT_TRUE(SameBits(answer->c, expected));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(server.calls(), 200);
}

TEST(ClientTest, CallbacksMayBeginCalls) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification finished;
  int left = 20;
  std::function<void()> next = [&] {
    client->SgemmAsync({.a = a.view(), .b = a.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         EXPECT_TRUE(answer.ok()) << answer.status();
                         if (--left > 0) return next();
                         finished.Notify();
                       });
  };
  next();
  finished.WaitForNotification();
  EXPECT_EQ(server.calls(), 20);
}

TEST(ClientTest, RetriesUnavailable) {
  FakeServer server(FailTimes(2, absl::UnavailableError("draining")));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->attempts, 3);
  EXPECT_TRUE(SameBits(answer->c, Expected(a, a)));
}

TEST(ClientTest, GivesUpAfterTheTriesAllowedWithTheServersWords) {
  FakeServer server(FailTimes(
      100, UnavailableRetryError("the server drains", absl::ZeroDuration())));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status().message(), "the server drains");
  EXPECT_EQ(server.calls(), 4);
}

TEST(ClientTest, WaitsAsLongAsTheServerAsks) {
  FakeServer server(FailTimes(
      1, QuotaError("queue-max-requests", "full", absl::Milliseconds(300))));
  const auto client =
      NewClient({.address = server.address(), .retry = QuickRetries()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->attempts, 2);
  EXPECT_GE(answer->elapsed, absl::Milliseconds(300));
}

TEST(ClientTest, RetriesNothingElse) {
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("no RetryInfo"), absl::InternalError("x"),
        absl::NotFoundError("x"), absl::InvalidArgumentError("x"),
        absl::AbortedError("x"), absl::FailedPreconditionError("x"),
        absl::OutOfRangeError("x"), absl::UnknownError("x"),
        absl::UnimplementedError("x")}) {
    FakeServer server(FailTimes(1, error));
    const auto client =
        NewClient({.address = server.address(), .retry = QuickRetries()});
    const Matrix a = RandomMatrix(2, 2);
    const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
    EXPECT_EQ(answer.status(), error);
    EXPECT_EQ(server.calls(), 1);
  }
}

TEST(ClientTest, KeepsTheDetailsOfAnError) {
  FakeServer server(
      FailTimes(1, InvalidFieldError("a.leading_dimension", "too small")));
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status(),
            InvalidFieldError("a.leading_dimension", "too small"));
}

TEST(ClientTest, EndsAtTheDeadline) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(300, 300);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm(
      {.a = a.view(), .b = a.view(), .timeout = absl::Milliseconds(150)});
  const absl::Duration took = absl::Now() - begin;
  EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr(server.address()), HasSubstr("150ms")));
  EXPECT_GE(took, absl::Milliseconds(140));
  EXPECT_LT(took, absl::Seconds(2));
}

TEST(ClientTest, DoesNotWaitForATryPastTheDeadline) {
  FakeServer server(
      FailTimes(100, QuotaError("queue", "full", absl::Seconds(30))));
  const auto client =
      NewClient({.address = server.address(), .timeout = absl::Seconds(10)});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_EQ(answer.status().message(), "full");
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
}

TEST(ClientTest, CancelEndsACallInProgress) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification ended;
  absl::Status status;
  SgemmHandle handle = client->SgemmAsync(
      {.a = a.view(), .b = a.view()}, [&](absl::StatusOr<SgemmAnswer> answer) {
        status = answer.status();
        ended.Notify();
      });
  gate.WaitFor(1);
  handle.Cancel();
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  gate.WaitFor(0);
  handle.Cancel();  // of a call that ended: nothing
}

TEST(ClientTest, CancelEndsAWaitForTheNextTry) {
  FakeServer server(
      FailTimes(100, QuotaError("queue", "full", absl::Seconds(30))));
  const auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification ended;
  absl::Status status;
  SgemmHandle handle = client->SgemmAsync(
      {.a = a.view(), .b = a.view()}, [&](absl::StatusOr<SgemmAnswer> answer) {
        status = answer.status();
        ended.Notify();
      });
  while (server.calls() == 0) absl::SleepFor(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(50));
  const absl::Time begin = absl::Now();
  handle.Cancel();
  ended.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_EQ(server.calls(), 1);
}

TEST(ClientTest, DestructionCancelsAndEveryCallbackIsCalledOnce) {
  Gate gate;
  FakeServer server(gate.Handler());
  auto client = NewClient({.address = server.address()});
  const Matrix a = RandomMatrix(2, 2);
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 8; ++i) {
    client->SgemmAsync({.a = a.view(), .b = a.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         cancelled += absl::IsCancelled(answer.status());
                       });
  }
  client.reset();
  EXPECT_EQ(cancelled, 8);
  gate.Open();
}

TEST(ClientTest, SpreadsCallsOverItsConnections) {
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

TEST(ClientTest, IsOneClientToTheServerAndAnotherThanTheNext) {
  FakeServer server(Answer);
  const Matrix a = RandomMatrix(2, 2);
  const auto first = NewClient({.address = server.address(), .connections = 2});
  const auto second = NewClient({.address = server.address()});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(first->Sgemm({.a = a.view(), .b = a.view()}).ok());
  }
  EXPECT_THAT(server.client_ids(), ::testing::ElementsAre(first->id()));
  ASSERT_TRUE(second->Sgemm({.a = a.view(), .b = a.view()}).ok());
  EXPECT_THAT(server.client_ids(),
              ::testing::UnorderedElementsAre(first->id(), second->id()));
  EXPECT_THAT(first->id(), MatchesRegex("[0-9a-f]{32}"));
}

TEST(ClientTest, NoServerAtTheAddressIsSaidWithinSeconds) {
  const DeadPort port;
  const auto client = NewClient({.address = port.address()});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr("no server at " + port.address()),
                    HasSubstr("Connection refused"), HasSubstr("check that")));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(3));
}

TEST(ClientTest, AnAddressThatDoesNotAnswerIsSaidWithinSeconds) {
  DeadPort port;  // listens now, but speaks to nobody
  ASSERT_EQ(listen(port.fd(), 1), 0);
  const auto client = NewClient({.address = port.address()});
  const Matrix a = RandomMatrix(2, 2);
  const absl::Time begin = absl::Now();
  const auto answer = client->Sgemm({.a = a.view(), .b = a.view()});
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("no server at " + port.address()));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(4));
}

TEST(ClientTest, NoSocketAtThePathIsSaid) {
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

TEST(ClientTest, EndsLateOnlyWhileAStalledServerHoldsTheOperands) {
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

TEST(ClientTest, FindsAServerThatComesBack) {
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

TEST(ClientTest, CreateRefusesWhatCannotBe) {
  for (const char* address : {"", "localhost", ":50051", "localhost:",
                              "localhost:0", "localhost:65536", "localhost:x",
                              "::1:50051", "http://x:1", "unix:", "a b:1"}) {
    EXPECT_TRUE(
        absl::IsInvalidArgument(Client::Create({.address = address}).status()))
        << address;
  }
  EXPECT_FALSE(
      Client::Create({.address = "unix:/" + std::string(107, 'x')}).ok());
  EXPECT_FALSE(Client::Create({.connections = -1}).ok());
  EXPECT_FALSE(Client::Create({.id = "me"}).ok());
  EXPECT_FALSE(Client::Create({.id = std::string(32, 'F')}).ok());
  EXPECT_TRUE(Client::Create({.id = std::string(32, 'f')}).ok());
  EXPECT_FALSE(Client::Create({.verify_fraction = 1.1}).ok());
  EXPECT_FALSE(Client::Create({.verify_fraction = std::nan("")}).ok());
  EXPECT_FALSE(Client::Create({.connections = 65}).ok());
  EXPECT_FALSE(Client::Create({.timeout = absl::ZeroDuration()}).ok());
  EXPECT_FALSE(Client::Create({.retry = {.max_attempts = 0}}).ok());
  EXPECT_TRUE(Client::Create({.address = "[::1]:50051"}).ok());
  EXPECT_TRUE(Client::Create({}).ok());
}

TEST(ClientTest, TellsWhatTheServerIs) {
  FakeServer server(Answer);
  server.info.set_version("1.2.3");
  server.info.set_backend("cpu");
  v1::Kernel* kernel = server.info.add_kernels();
  kernel->set_name("openblas");
  kernel->set_unavailable_reason("no such thing");
  kernel->set_precision(v1::PRECISION_TF32);
  server.info.add_devices()->set_memory_bytes(7);
  server.info.mutable_limits()->mutable_max_queue_delay()->set_nanos(5000);
  const auto client = NewClient({.address = server.address()});
  const auto info = client->GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_EQ(info->backend, "cpu");
  EXPECT_EQ(info->kernels.at(0).name, "openblas");
  EXPECT_EQ(info->kernels.at(0).unavailable_reason, "no such thing");
  EXPECT_EQ(info->kernels.at(0).precision, SgemmCall::Precision::kTf32);
  EXPECT_EQ(info->devices.at(0).memory_bytes, 7u);
  EXPECT_EQ(info->limits.max_queue_delay, absl::Microseconds(5));
}

TEST(ClientTest, TellsTheHealthOfTheServer) {
  FakeServer server(Answer);
  const auto client = NewClient({.address = server.address()});
  EXPECT_EQ(*client->Health(), ServerHealth::kServing);
  EXPECT_TRUE(absl::IsNotFound(client->Health("nobody").status()));
  FakeServer ill(Answer);
  ill.serving = false;
  const auto other = NewClient({.address = ill.address()});
  EXPECT_EQ(*other->Health(), ServerHealth::kNotServing);
}

}  // namespace
}  // namespace gemmd
