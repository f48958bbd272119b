// Starting, being found, draining and stopping.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::HttpGet;
using testing::RandomRequest;
using testing::RunningServer;
using testing::SlowRequest;
using testing::TestOptions;

HealthCheckResponse::ServingStatus Check(RunningServer& server,
                                         const std::string& service) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status status =
      server.health().Check(&context, request, &response);
  return status.ok() ? response.status() : HealthCheckResponse::UNKNOWN;
}

// A product on a thread of its own.
std::future<grpc::Status> Multiply(RunningServer& server,
                                   v1::SgemmRequest request) {
  return std::async(std::launch::async, [&server, request] {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    return server.gemm().Sgemm(&context, request, &response);
  });
}

TEST(ServerLifecycleTest, IsReadyOnEveryProbeWhenStartReturns) {
  RunningServer server;
  EXPECT_GT(server->grpc_port(), 0);
  EXPECT_GT(server->http_port(), 0);
  for (const char* service :
       {"", "gemmd.v1.GemmService", "readiness", "liveness"}) {
    EXPECT_EQ(Check(server, service), HealthCheckResponse::SERVING) << service;
  }
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  HealthCheckResponse response;
  EXPECT_EQ(server.health().Check(&context, request, &response).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(HttpGet(server->http_port(), "/readyz").status, 200);
  EXPECT_EQ(HttpGet(server->http_port(), "/livez").status, 200);
  EXPECT_THAT(HttpGet(server->http_port(), "/").body, HasSubstr("/metrics"));
  EXPECT_EQ(server->ListeningLines(),
            absl::StrCat("grpc listening on 127.0.0.1:", server->grpc_port(),
                         "\nhttp listening on 127.0.0.1:", server->http_port(),
                         "\n"));
}

TEST(ServerLifecycleTest, DrainTurnsHealthAtOnceAndServesThroughItsDelay) {
  ServerOptions options = TestOptions();
  options.drain_delay = absl::Milliseconds(600);
  RunningServer server(options);
  grpc::ClientContext context;
  HealthCheckRequest request;
  auto watch = server.health().Watch(&context, request);
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::SERVING);

  server->RequestShutdown();
  server->Wait();
  auto stopped =
      std::async(std::launch::async, [&server] { return server->Shutdown(); });
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Check(server, "readiness"), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Check(server, "liveness"), HealthCheckResponse::SERVING);
  const auto ready = HttpGet(server->http_port(), "/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_THAT(ready.body, HasSubstr("draining"));
  EXPECT_EQ(HttpGet(server->http_port(), "/livez").status, 200);
  // Clients that have not heard yet are still served.
  EXPECT_TRUE(Multiply(server, RandomRequest(4, 4, 4, 1)).get().ok());
  EXPECT_FALSE(watch->Read(&seen)) << "the watch ends with the server";
  watch->Finish();
  EXPECT_TRUE(stopped.get().ok());
}

class ServerDrainTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Queues, ServerDrainTest, ::testing::Values(1, 3));

TEST_P(ServerDrainTest, DrainFinishesWhatWasAccepted) {
  ServerOptions options = TestOptions();
  options.streams_per_device = 1;
  options.completion_queues = GetParam();
  RunningServer server(options);
  std::vector<std::future<grpc::Status>> products;
  for (int i = 0; i < 4; ++i) {
    products.push_back(Multiply(server, SlowRequest()));
  }
  ASSERT_TRUE(Eventually(
      [&] { return server.Metrics().Value("gemmd_inflight_requests") == 4; }));
  EXPECT_TRUE(server->Shutdown().ok());
  for (auto& product : products) {
    const grpc::Status status = product.get();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST(ServerLifecycleTest, ADrainThatTakesTooLongEndsTheWaitingAndAnswersAll) {
  ServerOptions options = TestOptions();
  options.streams_per_device = 1;
  options.drain_timeout = absl::ZeroDuration();
  RunningServer server(options);
  std::vector<std::future<grpc::Status>> products;
  for (int i = 0; i < 6; ++i) {
    products.push_back(Multiply(server, SlowRequest()));
  }
  ASSERT_TRUE(Eventually(
      [&] { return server.Metrics().Value("gemmd_inflight_requests") >= 4; }));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(server->Shutdown().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  int cut_off = 0;
  for (auto& product : products) {
    const grpc::Status status = product.get();
    if (!status.ok()) ++cut_off;
    EXPECT_THAT(
        status.error_code(),
        ::testing::AnyOf(grpc::StatusCode::OK, grpc::StatusCode::UNAVAILABLE,
                         grpc::StatusCode::CANCELLED))
        << status.error_message();
  }
  EXPECT_GE(cut_off, 1);
}

TEST(ServerLifecycleTest, AfterTheDrainNewProductsAreToldToRetryElsewhere) {
  ServerOptions options = TestOptions();
  options.streams_per_device = 1;
  RunningServer server(options);
  auto slow = Multiply(server, SlowRequest());
  ASSERT_TRUE(Eventually(
      [&] { return server.Metrics().Value("gemmd_inflight_requests") == 1; }));
  auto stopped =
      std::async(std::launch::async, [&server] { return server->Shutdown(); });
  grpc::Status late;
  EXPECT_TRUE(Eventually([&] {
    late = Multiply(server, RandomRequest(2, 2, 2, 1)).get();
    return !late.ok();
  }));
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE)
      << late.error_message();
  EXPECT_TRUE(slow.get().ok());
  EXPECT_TRUE(stopped.get().ok());
}

TEST(ServerLifecycleTest, ASecondServerOnThePortIsRefusedWithTheAddress) {
  RunningServer first;
  ServerOptions options = TestOptions();
  options.listen = absl::StrCat("127.0.0.1:", first->grpc_port());
  auto second = Server::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr(options.listen));

  options = TestOptions();
  options.http_listen = absl::StrCat("127.0.0.1:", first->http_port());
  second = Server::Start(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr(options.http_listen), HasSubstr("in use")));
  EXPECT_TRUE(Multiply(first, RandomRequest(2, 2, 2, 1)).get().ok());
}

TEST(ServerLifecycleTest, StartsAndStopsManyTimesInOneProcess) {
  for (int i = 0; i < 5; ++i) {
    RunningServer server;
    EXPECT_TRUE(Multiply(server, RandomRequest(3, 3, 3, 1)).get().ok());
    if (i % 2 == 1) continue;  // by its destructor
    EXPECT_TRUE(server->Shutdown().ok());
  }
}

TEST(ServerLifecycleTest, AnswersOnAUnixSocketToo) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "gemmd-test-", getpid(), ".sock");
  ServerOptions options = TestOptions();
  options.unix_socket = path;
  RunningServer server(options);
  auto stub = v1::GemmService::NewStub(grpc::CreateChannel(
      absl::StrCat("unix:", path), grpc::InsecureChannelCredentials()));
  const v1::SgemmRequest request = RandomRequest(5, 6, 7, 2);
  grpc::ClientContext context;
  v1::SgemmResponse response;
  const grpc::Status status = stub->Sgemm(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
  EXPECT_THAT(server->ListeningLines(),
              HasSubstr(absl::StrCat("grpc listening on unix:", path, "\n")));
  EXPECT_TRUE(server->Shutdown().ok());
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the socket was left behind";
}

TEST(ServerLifecycleTest, WithoutTcpThereIsTheUnixSocketAlone) {
  ServerOptions options = TestOptions();
  options.listen = "";
  options.http_listen = "";
  options.unix_socket =
      absl::StrCat(::testing::TempDir(), "gemmd-alone-", getpid(), ".sock");
  auto server = Server::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->grpc_port(), 0);
  EXPECT_EQ((*server)->http_port(), 0);
}

TEST(ServerLifecycleTest, WithoutMetricsProbesAreStillAnswered) {
  ServerOptions options = TestOptions();
  options.metrics = false;
  RunningServer server(options);
  EXPECT_EQ(HttpGet(server->http_port(), "/metrics").status, 404);
  EXPECT_EQ(HttpGet(server->http_port(), "/readyz").status, 200);
  EXPECT_TRUE(Multiply(server, RandomRequest(3, 3, 3, 1)).get().ok());
}

TEST(ServerLifecycleTest, AKernelThatCannotServeIsAnErrorAtStart) {
  for (const char* kernel : {"magic", "naive"}) {
    ServerOptions options = TestOptions();
    options.kernel = kernel;
    const auto server = Server::Start(options);
    ASSERT_FALSE(server.ok());
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(server.status().message(),
                AllOf(HasSubstr("--kernel"), HasSubstr(kernel)));
  }
}

TEST(ServerLifecycleTest, ReflectionListsTheServices) {
  RunningServer server;
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto next = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(next());
  const grpc::Slice list_services("\x3a\x00", 2);  // field 7, an empty string
  call->WriteLast(grpc::ByteBuffer(&list_services, 1), grpc::WriteOptions(),
                  nullptr);
  ASSERT_TRUE(next());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(next());
  grpc::Slice slice;
  ASSERT_TRUE(answer.DumpToSingleSlice(&slice).ok());
  const std::string text(reinterpret_cast<const char*>(slice.begin()),
                         slice.size());
  EXPECT_THAT(text, AllOf(HasSubstr("gemmd.v1.GemmService"),
                          HasSubstr("grpc.health.v1.Health")));
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
}

}  // namespace
}  // namespace gemmd
