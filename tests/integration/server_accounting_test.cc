// Every request ends once, in one state, and the metrics add up (I1).

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"

namespace gemmd {
namespace {

using testing::Eventually;
using testing::RandomRequest;
using testing::RunningServer;
using testing::SlowRequest;
using testing::TestOptions;

constexpr char kSgemm[] = "gemmd.v1.GemmService/Sgemm\"";

ServerOptions OneStream() {
  ServerOptions options = TestOptions();
  options.streams_per_device = 1;
  return options;
}

double Ended(const testing::Exposition& metrics, const char* code) {
  return metrics.Value(
      absl::StrCat("grpc_server_call_completed_total{grpc_method=\"", kSgemm,
                   ",grpc_status=\"", code, "\"}"));
}

double Launches(const testing::Exposition& metrics) {
  return metrics.Sum("gemmd_kernel_launches_total");
}

class ServerAccountingTest : public ::testing::Test {
 protected:
  // Keeps the one stream busy until destroyed or done.
  void Occupy() {
    busy_ = std::thread([this] {
      grpc::ClientContext context;
      v1::SgemmResponse response;
      EXPECT_TRUE(
          server_.gemm().Sgemm(&context, SlowRequest(), &response).ok());
    });
    ASSERT_TRUE(Eventually(
        [this] { return server_.Metrics().Sum("gemmd_streams_busy") == 1; }));
  }
  ~ServerAccountingTest() override {
    if (busy_.joinable()) busy_.join();
  }

  RunningServer server_{OneStream()};
  std::thread busy_;
};

TEST_F(ServerAccountingTest, MemoryIsShownFromDecodingToTheLastByteSent) {
  const testing::Exposition idle = server_.Metrics();
  EXPECT_EQ(idle.Value("gemmd_held_bytes"), 0);
  EXPECT_EQ(idle.Value("gemmd_staging_bytes"), 0);
  EXPECT_EQ(idle.Value("gemmd_held_capacity_bytes"),
            TestOptions().queue_max_bytes);
  EXPECT_EQ(idle.Value("gemmd_staging_capacity_bytes"),
            TestOptions().pinned_pool_bytes);
  // An answer of 36 MB that nobody reads: larger than all windows and buffers.
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  v1::SgemmResponse response;
  grpc::Status status;
  auto call = server_.gemm().AsyncSgemm(
      &context, RandomRequest(3000, 3000, 1, 1), &queue);
  call->Finish(&response, &status, nullptr);
  EXPECT_TRUE(Eventually([this] {
    const testing::Exposition metrics = server_.Metrics();
    return metrics.Value("gemmd_inflight_requests") == 0 &&
           metrics.Value("gemmd_held_bytes") >= 36e6 &&
           metrics.Value("gemmd_staging_bytes") >= 36e6;
  }));
  void* tag;
  bool ok;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(Eventually([this] {
    const testing::Exposition metrics = server_.Metrics();
    return metrics.Value("gemmd_held_bytes") == 0 &&
           metrics.Value("gemmd_staging_bytes") == 0;
  }));
}

TEST_F(ServerAccountingTest, ACancelledProductNeverReachesTheDevice) {
  Occupy();
  grpc::ClientContext context;
  grpc::Status status;
  std::thread product([&] {
    v1::SgemmResponse response;
    status =
        server_.gemm().Sgemm(&context, RandomRequest(9, 9, 9, 1), &response);
  });
  ASSERT_TRUE(Eventually(
      [this] { return server_.Metrics().Value("gemmd_queue_depth") == 1; }));
  context.TryCancel();
  product.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  busy_.join();
  const auto calls = server_.SettledCalls(kSgemm);
  EXPECT_EQ(calls.started, 2);
  EXPECT_EQ(calls.completed, 2);
  const auto metrics = server_.Metrics();
  EXPECT_EQ(Ended(metrics, "OK"), 1);
  EXPECT_EQ(Ended(metrics, "CANCELLED"), 1);
  EXPECT_EQ(metrics.Value("gemmd_queue_depth"), 0);
  EXPECT_EQ(metrics.Value("gemmd_inflight_requests"), 0);
  EXPECT_EQ(Launches(metrics), 1);
}

TEST_F(ServerAccountingTest, AProductPastItsDeadlineNeverReachesTheDevice) {
  Occupy();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::milliseconds(20));
  v1::SgemmResponse response;
  const grpc::Status status =
      server_.gemm().Sgemm(&context, RandomRequest(9, 9, 9, 1), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  busy_.join();
  const auto calls = server_.SettledCalls(kSgemm);
  EXPECT_EQ(calls.started, 2);
  const auto metrics = server_.Metrics();
  EXPECT_EQ(Ended(metrics, "OK"), 1);
  EXPECT_EQ(Ended(metrics, "DEADLINE_EXCEEDED") + Ended(metrics, "CANCELLED"),
            1);
  EXPECT_EQ(Launches(metrics), 1);
}

TEST_F(ServerAccountingTest, ADeadlineInThePastIsExceededAtOnce) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() -
                       std::chrono::seconds(5));
  v1::SgemmResponse response;
  EXPECT_EQ(server_.gemm()
                .Sgemm(&context, RandomRequest(9, 9, 9, 1), &response)
                .error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(Launches(server_.Metrics()), 0);
}

TEST(ServerFullQueueTest, RefusesWithAReasonAndCountsIt) {
  ServerOptions options = OneStream();
  options.queue_max_requests = 2;
  options.max_batch_requests = 1;
  RunningServer server(options);
  std::atomic<int> ok{0}, refused{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&] {
      grpc::ClientContext context;
      v1::SgemmResponse response;
      const grpc::Status status =
          server.gemm().Sgemm(&context, SlowRequest(), &response);
      if (status.ok()) ++ok;
      if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
        ++refused;
        EXPECT_THAT(status.error_message(),
                    ::testing::HasSubstr("--queue-max-requests"));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ok + refused, 8);
  EXPECT_GE(ok, 1);
  EXPECT_GE(refused, 1);
  const auto calls = server.SettledCalls(kSgemm);
  EXPECT_EQ(calls.started, 8);
  const auto metrics = server.Metrics();
  EXPECT_EQ(Ended(metrics, "OK"), ok);
  EXPECT_EQ(Ended(metrics, "RESOURCE_EXHAUSTED"), refused);
  EXPECT_EQ(metrics.Sum("gemmd_requests_shed_total"), refused);
  EXPECT_EQ(metrics.Value("gemmd_queue_capacity"), 2);
  // Three matrices of 800 x 800 floats: two come, one goes where it was OK.
  const double matrix = 800 * 800 * 4;
  EXPECT_NEAR(
      metrics.Sum("grpc_server_call_rcvd_total_message_size_bytes_sum", kSgemm),
      8 * 2 * matrix, 8 * 200);
  EXPECT_NEAR(
      metrics.Sum("grpc_server_call_sent_total_message_size_bytes_sum", kSgemm),
      ok * matrix, 8 * 200);
}

ServerOptions WithQueues(int queues) {
  ServerOptions options = TestOptions();
  options.completion_queues = queues;
  return options;
}

// Clients that multiply, send nonsense, cancel and give up, all at once; with
// several completion queues, which end what devices have made.
class ServerMixedLoadTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Queues, ServerMixedLoadTest, ::testing::Values(1, 3));

TEST_P(ServerMixedLoadTest, TheSumOfTerminalStatesIsTheRequestsReceived) {
  RunningServer server(WithQueues(GetParam()));
  constexpr int kClients = 6;
  constexpr int kRequests = 60;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::vector<std::thread> clients;
  // Neither cancelled nor given up, so that the server has seen them.
  std::atomic<int> certain{0};
  std::atomic<int> ok{0}, invalid{0};
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937_64 random(seed + client);
      auto stub = v1::GemmService::NewStub(server.Connect());
      for (int i = 0; i < kRequests; ++i) {
        const int64_t size = 1 + random() % 200;
        v1::SgemmRequest request =
            RandomRequest(size, 1 + random() % 50, size, random());
        grpc::ClientContext context;
        std::thread canceller;
        const int kind = random() % 4;
        certain += kind == 0 || kind == 3;
        switch (kind) {
          case 0:
            request.set_beta(1);  // without c
            break;
          case 1:
            context.set_deadline(std::chrono::system_clock::now() +
                                 std::chrono::microseconds(random() % 3000));
            break;
          case 2:
            canceller = std::thread([&context, delay = random() % 3000] {
              std::this_thread::sleep_for(std::chrono::microseconds(delay));
              context.TryCancel();
            });
            break;
          default:
            break;
        }
        v1::SgemmResponse response;
        const grpc::Status status = stub->Sgemm(&context, request, &response);
        if (canceller.joinable()) canceller.join();
        if (status.ok()) {
          ++ok;
          EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
        }
        invalid += status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const auto calls = server.SettledCalls(kSgemm);
  EXPECT_EQ(calls.started, calls.completed);
  EXPECT_GE(calls.started, certain);
  EXPECT_LE(calls.started, kClients * kRequests);
  const auto metrics = server.Metrics();
  // A client that gave up may have missed an answer, and nothing else ends so.
  EXPECT_GE(Ended(metrics, "OK"), ok);
  EXPECT_EQ(Ended(metrics, "INVALID_ARGUMENT"), invalid);
  EXPECT_EQ(Ended(metrics, "OK") + Ended(metrics, "INVALID_ARGUMENT") +
                Ended(metrics, "CANCELLED") +
                Ended(metrics, "DEADLINE_EXCEEDED"),
            calls.started);
  EXPECT_GT(certain, 0);
  EXPECT_EQ(metrics.Value("gemmd_inflight_requests"), 0);
  EXPECT_EQ(metrics.Value("gemmd_queue_depth"), 0);
  EXPECT_EQ(metrics.Value("gemmd_queue_bytes"), 0);
  EXPECT_THAT(metrics.problems, ::testing::IsEmpty());
}

}  // namespace
}  // namespace gemmd
