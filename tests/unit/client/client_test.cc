#include "gemmd/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::MatchesRegex;

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

// And one call at a time is always driven by the same thread, however many
// there are, so that a busy poll keeps the right one awake.
TEST(ClientTest, CallbacksMayBeginCalls) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .connections = 3});
  const Matrix a = RandomMatrix(2, 2);
  absl::Notification finished;
  int left = 20;
  std::set<std::thread::id> threads;
  std::function<void()> next = [&] {
    client->SgemmAsync({.a = a.view(), .b = a.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         EXPECT_TRUE(answer.ok()) << answer.status();
                         threads.insert(std::this_thread::get_id());
                         if (--left > 0) return next();
                         finished.Notify();
                       });
  };
  next();
  finished.WaitForNotification();
  EXPECT_EQ(server.calls(), 20);
  EXPECT_EQ(threads.size(), 1);
}

TEST(ClientTest, ACallbackThatTakesLongHoldsUpNoOtherCall) {
  FakeServer server(Answer);
  const auto client =
      NewClient({.address = server.address(), .connections = 3});
  const Matrix a = RandomMatrix(2, 2);
  const SgemmCall call = {.a = a.view(), .b = a.view()};
  absl::Notification in_callback, others_answered, left;
  client->SgemmAsync(call, [&](const absl::StatusOr<SgemmAnswer>&) {
    in_callback.Notify();
    others_answered.WaitForNotificationWithTimeout(absl::Seconds(20));
    left.Notify();
  });
  in_callback.WaitForNotification();
  for (int i = 0; i < 4; ++i) {
    absl::Notification answered;
    client->SgemmAsync(call, [&](const absl::StatusOr<SgemmAnswer>& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      answered.Notify();
    });
    answered.WaitForNotification();
    EXPECT_FALSE(left.HasBeenNotified()) << "call " << i;
  }
  others_answered.Notify();
  left.WaitForNotification();
}

TEST(ClientTest, WaitsBeyondItsBusyPoll) {
  FakeServer server(FailTimes(
      2, QuotaError("queue-max-requests", "full", absl::Milliseconds(20))));
  const auto client = NewClient(
      {.address = server.address(), .busy_poll = absl::Microseconds(100)});
  const Matrix a = RandomMatrix(2, 2);
  const SgemmCall call = {.a = a.view(), .b = a.view()};
  const auto answer = client->Sgemm(call);
  ASSERT_TRUE(answer.ok()) << answer.status();
  absl::Notification finished;
  client->SgemmAsync(call, [&](absl::StatusOr<SgemmAnswer> later) {
    EXPECT_TRUE(later.ok()) << later.status();
    finished.Notify();
  });
  finished.WaitForNotification();
  EXPECT_EQ(server.calls(), 4);
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
  EXPECT_FALSE(Client::Create({.busy_poll = absl::Seconds(2)}).ok());
  EXPECT_FALSE(Client::Create({.busy_poll = -absl::Seconds(1)}).ok());
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
