// Small products on streams.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "client/connections.h"
#include "client/identity.h"
#include "client/operation.h"
#include "client/product_stream.h"
#include "gemmd/client.h"
#include "proto/error_details.h"
#include "tests/unit/client/client_fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

// Patient: what is tried again here is what a test lets fail.
std::unique_ptr<Client> NewStreamingClient(const std::string& address,
                                           int connections = 1) {
  return NewClient({.address = address,
                    .connections = connections,
                    .connect_timeout = absl::Seconds(30),
                    .retry = QuickRetries(),
                    .stream_small_products = true});
}

// The answers to A B, begun at once so many times.
std::vector<absl::StatusOr<SgemmAnswer>> MultiplyManyTimes(Client* client,
                                                           const Matrix& a,
                                                           const Matrix& b,
                                                           int times) {
  std::vector<absl::StatusOr<SgemmAnswer>> answers(times);
  absl::BlockingCounter left(times);
  for (auto& to : answers) {
    client->SgemmAsync({.a = a.view(), .b = b.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         to = std::move(answer);
                         left.DecrementCount();
                       });
  }
  left.Wait();
  return answers;
}

absl::StatusOr<SgemmAnswer> MultiplyOnce(Client* client, const Matrix& a,
                                         const Matrix& b) {
  return std::move(MultiplyManyTimes(client, a, b, 1)[0]);
}

TEST(ClientStreamTest, SmallProductsShareAStreamForEachConnection) {
  FakeServer server(Answer);
  const auto client = NewStreamingClient(server.address(), /*connections=*/2);
  for (auto [m, n, k] : {std::array<int, 3>{1, 1, 1},
                         {0, 3, 2},
                         {7, 5, 3},
                         {64, 33, 100},     // operands that are not copied
                         {128, 128, 1}}) {  // an answer of 64 KiB
    const Matrix a = RandomMatrix(m, k);
    const Matrix b = RandomMatrix(k, n);
    for (const auto& answer : MultiplyManyTimes(client.get(), a, b, 20)) {
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_TRUE(SameBits(answer->c, Expected(a, b)));
      EXPECT_EQ(answer->attempts, 1);
    }
  }
  EXPECT_EQ(server.calls(), 0);
  EXPECT_EQ(server.seen().streamed, 100);
  EXPECT_EQ(server.seen().streams, 2);
}

TEST(ClientStreamTest, EachConnectionHasItsStreamWhenLittleIsToDo) {
  FakeServer server(Answer);
  const auto client = NewStreamingClient(server.address(), /*connections=*/2);
  const Matrix a = RandomMatrix(2, 2);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(MultiplyOnce(client.get(), a, a).ok());
  }
  EXPECT_EQ(server.seen().streams, 2);
  EXPECT_EQ(server.peers().size(), 2u);
}

TEST(ClientStreamTest, TheOthersAreCalls) {
  FakeServer server(Answer);
  const auto client = NewStreamingClient(server.address());
  const Matrix small = RandomMatrix(3, 3);
  ASSERT_TRUE(client->Sgemm({.a = small.view(), .b = small.view()}).ok());
  const Matrix row = RandomMatrix(1, 17'000);  // 66 KiB
  const Matrix column = RandomMatrix(17'000, 1);
  ASSERT_TRUE(MultiplyOnce(client.get(), row, column).ok());
  const auto by_default = NewClient({.address = server.address()});
  ASSERT_TRUE(MultiplyOnce(by_default.get(), small, small).ok());
  EXPECT_EQ(server.calls(), 3);
  EXPECT_EQ(server.seen().streams, 0);
}

TEST(ClientStreamTest, MuchWorkOnResidentOperandsIsACall) {
  FakeServer server([](auto&, const auto&, auto*) {
    return InvalidFieldError("a", "not today");
  });
  const auto client = NewStreamingClient(server.address());
  const Matrix wide = RandomMatrix(128, 4097);  // with its transpose, over 2^26
  const auto x = client->Upload(wide.view());
  ASSERT_TRUE(x.ok()) << x.status();
  const auto multiply = [&](const Operand& a) {
    absl::Notification done;
    client->SgemmAsync({.a = a, .b = *x, .transpose_b = true},
                       [&](const absl::StatusOr<SgemmAnswer>& answer) {
                         EXPECT_FALSE(answer.ok());
                         done.Notify();
                       });
    done.WaitForNotification();
  };
  multiply(*x);
  EXPECT_EQ(server.seen().streams, 0);
  const Matrix row = RandomMatrix(1, 4097);
  multiply(row.view());
  EXPECT_EQ(server.seen().streams, 1);
}

TEST(ClientStreamTest, AnItemThatMayBeTriedAgainBecomesACall) {
  FakeServer server(FailTimes(
      1, QuotaError("queue-max-requests", "full", absl::Milliseconds(20))));
  const auto client = NewStreamingClient(server.address());
  const Matrix a = RandomMatrix(3, 3);
  const auto answer = MultiplyOnce(client.get(), a, a);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(SameBits(answer->c, Expected(a, a)));
  EXPECT_EQ(answer->attempts, 2);
  EXPECT_GE(answer->elapsed, absl::Milliseconds(20));
  EXPECT_EQ(server.calls(), 1);
}

TEST(ClientStreamTest, AnItemsErrorIsItsOwnAndNotTriedAgain) {
  const absl::Status error = InvalidFieldError("a.rows", "too odd");
  FakeServer server([&](grpc::ServerContext& context,
                        const v1::SgemmRequest& request,
                        v1::SgemmResponse* response) {
    return request.a().rows() % 2 == 1 ? error
                                       : Answer(context, request, response);
  });
  const auto client = NewStreamingClient(server.address());
  const Matrix odd = RandomMatrix(3, 3);
  const Matrix even = RandomMatrix(4, 4);
  EXPECT_EQ(MultiplyOnce(client.get(), odd, odd).status(), error);
  EXPECT_TRUE(MultiplyOnce(client.get(), even, even).ok());
  EXPECT_EQ(server.seen().streams, 1);
  EXPECT_EQ(server.calls(), 0);
}

TEST(ClientStreamTest, ABrokenStreamIsMadeUpForByCallsAndThenByAnother) {
  FakeServer server(Answer);
  server.BreakStreams(1);
  const auto client = NewStreamingClient(server.address());
  const Matrix a = RandomMatrix(3, 3);
  for (const auto& answer : MultiplyManyTimes(client.get(), a, a, 30)) {
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_TRUE(SameBits(answer->c, Expected(a, a)));
  }
  EXPECT_GE(server.calls(), 1);
  const int streamed = server.seen().streamed;
  ASSERT_TRUE(MultiplyOnce(client.get(), a, a).ok());
  EXPECT_EQ(server.seen().streamed, streamed + 1);
}

TEST(ClientStreamTest, NoServerIsSaidAfterTheTriesOfACall) {
  const std::string address = FakeServer(Answer).address();
  const auto client = NewStreamingClient(address);
  const Matrix a = RandomMatrix(3, 3);
  const auto answer = MultiplyOnce(client.get(), a, a);
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()),
              HasSubstr("no server at " + address));
}

TEST(ClientStreamTest, ItemsEndAtTheirDeadlineAndWhenCancelled) {
  Gate gate;
  FakeServer server(gate.Handler());
  const auto client = NewStreamingClient(server.address());
  const Matrix a = RandomMatrix(3, 3);
  absl::Notification late, cancelled, later;
  absl::Status late_status, cancelled_status, later_status;
  const auto begin = [&](absl::Duration timeout, absl::Status* status,
                         absl::Notification* ended) {
    return client->SgemmAsync(
        {.a = a.view(), .b = a.view(), .timeout = timeout},
        [status, ended](absl::StatusOr<SgemmAnswer> answer) {
          *status = answer.status();
          ended->Notify();
        });
  };
  begin(absl::Milliseconds(100), &late_status, &late);
  SgemmHandle handle =
      begin(absl::InfiniteDuration(), &cancelled_status, &cancelled);
  begin(absl::Minutes(1), &later_status, &later);
  late.WaitForNotification();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late_status)) << late_status;
  EXPECT_THAT(std::string(late_status.message()), HasSubstr("100ms"));
  EXPECT_FALSE(cancelled.HasBeenNotified());
  handle.Cancel();
  cancelled.WaitForNotification();
  EXPECT_TRUE(absl::IsCancelled(cancelled_status)) << cancelled_status;
  EXPECT_FALSE(later.HasBeenNotified());
  gate.Open();  // answers that nobody waits for are let go
  later.WaitForNotification();
  EXPECT_TRUE(later_status.ok()) << later_status;
  handle.Cancel();  // of a product that ended: nothing
}

// Its client has nothing more to say, and the server may want to end the
// connection.
TEST(ClientStreamTest, AnIdleStreamEndsAtItsAge) {
  FakeServer server(Answer);
  const ClientOptions options = {.address = server.address()};
  const client::Connections connections(options);
  const client::Identity identity(options, std::string(32, 'a'));
  client::ProductStream stream(&connections, 0, &identity,
                               /*max_age=*/absl::Milliseconds(20));
  v1::SgemmRequest request;
  request.mutable_a();
  request.mutable_b();
  for (int i = 1; i <= 2; ++i) {
    client::Operation operation(absl::Minutes(1));
    absl::Notification answered;
    stream.Begin(stream.NewSequence(),
                 {.request = grpc::Slice(request.SerializeAsString()),
                  .operation = &operation,
                  .done = [&](absl::StatusOr<grpc::ByteBuffer> answer) {
                    EXPECT_TRUE(answer.ok()) << answer.status();
                    answered.Notify();
                  }});
    answered.WaitForNotification();
    EXPECT_TRUE(Eventually([&] { return server.seen().ended_streams == i; }));
    EXPECT_EQ(server.seen().streams, i);
  }
}

TEST(ClientStreamTest, DestructionCancelsAndEveryCallbackIsCalledOnce) {
  Gate gate;
  FakeServer server(gate.Handler());
  EXPECT_EQ(CancelledByDestruction(NewStreamingClient(server.address()), 8), 8);
  gate.Open();
}

}  // namespace
}  // namespace gemmd
