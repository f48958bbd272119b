// A server's end: what is waited for, what is refused, what is cut off.

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/error_details.h"
#include "proto/status.h"
#include "tests/support/held_proxy.h"
#include "tests/unit/server/rpc/service_fixture.h"

namespace gemmd {
namespace {

TEST_F(ServiceTest, ADrainingServerRefusesWithRetryInfo) {
  StartServer();
  server_->RefuseNew(In(std::chrono::seconds(30)));
  const absl::Status status = Multiply();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(RetryDelay(status).has_value());
}

TEST_F(ServiceTest, ShutdownWaitsForProductsInProgress) {
  StartServer();
  backend_->gate().Close();
  auto call = std::async(std::launch::async, [&] { return Multiply(); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  auto shutdown = std::async(std::launch::async, [&] {
    return server_->Shutdown(In(std::chrono::seconds(30)));
  });
  EXPECT_EQ(shutdown.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout);
  backend_->gate().Open();
  EXPECT_TRUE(call.get().ok());
  EXPECT_TRUE(shutdown.get());
}

// Whenever it comes: neither CANCELLED, nor held up by who asks on and on.
TEST_F(ServiceTest, ACallInTheLastMomentOfADrainIsUnavailableIfNotAnswered) {
  for (int round = 0; round < 10; ++round) {
    StartServer();
    std::atomic<bool> stop = false;
    std::vector<std::future<std::map<absl::StatusCode, int>>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::async(std::launch::async, [&] {
        const auto stub = v1::GemmService::NewStub(
            Connect(absl::StrCat("127.0.0.1:", server_->port())));
        const v1::SgemmRequest request = Product(2, 2, 2);
        std::map<absl::StatusCode, int> ends;
        while (!stop) {
          grpc::ClientContext context;
          v1::SgemmResponse response;
          const grpc::Status status = stub->Sgemm(&context, request, &response);
          ++ends[FromGrpcStatus(status).code()];
        }
        return ends;
      }));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const MonotonicTime start = MonotonicClock::now();
    EXPECT_TRUE(server_->Shutdown(In(std::chrono::seconds(30))));
    EXPECT_LT(MonotonicClock::now() - start, std::chrono::seconds(10));
    stop = true;
    for (auto& client : clients) {
      for (const auto& [code, count] : client.get()) {
        EXPECT_TRUE(code == absl::StatusCode::kOk ||
                    code == absl::StatusCode::kUnavailable)
            << count << " calls ended with " << code << " in round " << round;
      }
    }
    server_.reset();
  }
}

// A client whose request is sent in part and the rest when the test says so.
struct HeldUpload {
  HeldUpload(int server_port, const v1::SgemmRequest& request)
      : proxy(
            {.to_port = server_port, .pass_bytes = request.ByteSizeLong() / 2}),
        stub(v1::GemmService::NewStub(
            grpc::CreateChannel(absl::StrCat("127.0.0.1:", proxy.port()),
                                grpc::InsecureChannelCredentials()))),
        call(std::async(std::launch::async, [this, request] {
          grpc::ClientContext context;
          return FromGrpcStatus(stub->Sgemm(&context, request, &response));
        })) {}

  testing::HeldProxy proxy;
  std::unique_ptr<v1::GemmService::Stub> stub;
  v1::SgemmResponse response;
  std::future<absl::Status> call;
};

TEST_F(ServiceTest, ARequestThatIsStillArrivingIsWaitedFor) {
  StartServer();
  const v1::SgemmRequest request = Product(512, 1, 512);
  HeldUpload upload(server_->port(), request);
  WaitFor([&] { return upload.proxy.holds() && Begun("Sgemm") == 1; });
  auto shutdown = std::async(std::launch::async, [&] {
    server_->RefuseNew(In(std::chrono::seconds(30)));
    EXPECT_FALSE(Multiply().ok()) << "a new one is refused meanwhile";
    return server_->Shutdown(In(std::chrono::seconds(30)));
  });
  EXPECT_EQ(shutdown.wait_for(std::chrono::milliseconds(200)),
            std::future_status::timeout);
  upload.proxy.Release();
  const absl::Status status = upload.call.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(shutdown.get());
  ExpectProduct(request, upload.response);
}

TEST_F(ServiceTest, ARequestThatDoesNotArriveInTimeIsUnavailable) {
  StartServer();
  HeldUpload upload(server_->port(), Product(512, 1, 512));
  WaitFor([&] { return upload.proxy.holds() && Begun("Sgemm") == 1; });
  const MonotonicTime start = MonotonicClock::now();
  EXPECT_FALSE(server_->Shutdown(In(std::chrono::milliseconds(300))));
  EXPECT_GE(MonotonicClock::now() - start, std::chrono::milliseconds(300));
  EXPECT_LT(MonotonicClock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(upload.call.get().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ServiceTest, ShutdownEndsWhatIsLeftAtItsDeadline) {
  StartServer();
  backend_->gate().Close();
  auto running = std::async(std::launch::async, [&] { return Multiply(); });
  WaitFor([&] { return backend_->gate().waiting() == 1; });
  auto queued = std::async(std::launch::async, [&] { return Multiply(); });
  WaitFor([&] { return scheduler_->queued_requests() == 1; });
  auto shutdown = std::async(std::launch::async, [&] {
    return server_->Shutdown(In(std::chrono::milliseconds(100)));
  });
  EXPECT_FALSE(queued.get().ok());
  backend_->gate().Open();  // the device returns in the end
  EXPECT_FALSE(shutdown.get());
  EXPECT_FALSE(running.get().ok());
}

TEST_F(ServiceTest, DestructionTakesBackWhatAClientDoesNotRead) {
  StartServer();
  // A stopped client: the answer is larger than all windows and buffers, and
  // nobody polls the client's queue.
  grpc::CompletionQueue queue;
  auto context = std::make_unique<grpc::ClientContext>();
  v1::SgemmResponse response;
  grpc::Status status;
  auto call = stub_->AsyncSgemm(context.get(), Product(3000, 3000, 1), &queue);
  call->Finish(&response, &status, this);
  // Answered, and the answer still held by gRPC.
  WaitFor([&] {
    return metrics_.Render().find("_count{stage=\"encode\"} 1\n") !=
           std::string::npos;
  });
  EXPECT_GT(backend_->staging().used_bytes(), 0);
  server_.reset();
  EXPECT_EQ(backend_->staging().used_bytes(), 0);
  EXPECT_EQ(admission_->bytes(), 0);
  // Nobody had the answer, so that is no OK.
  const std::string metrics = metrics_.Render();
  const auto ended_once = [&metrics](const std::string& status) {
    return absl::StrContains(
        metrics, absl::StrCat("Sgemm\",grpc_status=\"", status, "\"} 1\n"));
  };
  EXPECT_TRUE(ended_once("CANCELLED"));
  EXPECT_FALSE(ended_once("OK"));
  queue.Shutdown();
  void* tag;
  bool ok;
  while (queue.Next(&tag, &ok)) {
  }
}

}  // namespace
}  // namespace gemmd
