// The server beside Sgemm: health, information, what is refused.

#include "server/rpc/service.h"

#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/unit/server/rpc/service_fixture.h"

namespace gemmd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthTest : public ServiceTest {
 protected:
  std::unique_ptr<grpc::health::v1::Health::Stub> HealthStub() {
    return grpc::health::v1::Health::NewStub(channel_);
  }

  // The status's code, or that of the health: "SERVING", "5".
  std::string Check(const std::string& service) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    const grpc::Status status =
        HealthStub()->Check(&context, request, &response);
    if (!status.ok()) return absl::StrCat(status.error_code());
    return HealthCheckResponse::ServingStatus_Name(response.status());
  }
};

TEST_F(HealthTest, HealthFollowsServingAndIsAlwaysLive) {
  StartServer();
  for (const char* service : {"", "gemmd.v1.GemmService", "readiness"}) {
    EXPECT_EQ(Check(service), "NOT_SERVING") << service;
  }
  EXPECT_EQ(Check("liveness"), "SERVING");
  server_->SetServing(true);
  for (const char* service :
       {"", "gemmd.v1.GemmService", "readiness", "liveness"}) {
    EXPECT_EQ(Check(service), "SERVING") << service;
  }
  server_->SetServing(false);
  EXPECT_EQ(Check("readiness"), "NOT_SERVING");
  EXPECT_EQ(Check("liveness"), "SERVING");
  EXPECT_EQ(Check("no.such.Service"), absl::StrCat(grpc::NOT_FOUND));
}

TEST_F(HealthTest, WatchTellsEachChangeAndTheEnd) {
  StartServer();
  grpc::ClientContext context;
  auto health = HealthStub();
  auto reader = health->Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server_->SetServing(true);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server_->SetServing(true);  // no change, nothing to tell
  server_->SetServing(false);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_TRUE(server_->Shutdown(In(std::chrono::seconds(10))));
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::UNAVAILABLE);
}

TEST_F(HealthTest, WatchingAnUnknownServiceSaysSo) {
  StartServer();
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("no.such.Service");
  auto health = HealthStub();
  auto reader = health->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::CANCELLED);
}

TEST_F(HealthTest, ManyWatchersMayComeAndGo) {
  StartServer();
  auto health = HealthStub();
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<HealthCheckResponse>>>
        readers;
    for (int i = 0; i < 40; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(
          health->Watch(contexts.back().get(), HealthCheckRequest()));
    }
    HealthCheckResponse response;
    for (auto& reader : readers) ASSERT_TRUE(reader->Read(&response));
    server_->SetServing(round % 2 == 0);
    for (size_t i = 0; i < contexts.size(); i += 2) contexts[i]->TryCancel();
    server_->SetServing(round % 2 != 0);
  }
}

TEST_F(ServiceTest, InfoTellsDevicesKernelsAndLimits) {
  RpcOptions options;
  options.version = "1.2.3";
  options.build = "abc";
  options.max_queue_delay = absl::Microseconds(1500);
  StartServer(options);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(
      stub_->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.build(), "abc");
  EXPECT_EQ(info.backend(), "cpu");
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_GE(info.devices(0).streams(), 1);
  EXPECT_NE(info.devices(0).name(), "");
  ASSERT_EQ(static_cast<size_t>(info.kernels_size()),
            registry_.entries().size());
  for (const v1::Kernel& kernel : info.kernels()) {
    EXPECT_EQ(kernel.available(), kernel.unavailable_reason().empty())
        << kernel.name();
    EXPECT_EQ(kernel.available(), kernel.backend() == "cpu") << kernel.name();
  }
  EXPECT_EQ(info.limits().max_inline_bytes(), options.max_inline_bytes);
  EXPECT_EQ(info.limits().max_queue_delay().nanos(), 1500000);
}

TEST_F(ServiceTest, WithoutAStoreThereAreNoMatrices) {
  store_.reset();
  StartServer();
  EXPECT_TRUE(Multiply().ok());
  {
    grpc::ClientContext context;
    v1::ListMatricesResponse response;
    EXPECT_EQ(stub_->ListMatrices(&context, {}, &response).error_code(),
              grpc::UNIMPLEMENTED);
  }
  {
    grpc::ClientContext context;
    v1::DeleteMatrixResponse response;
    EXPECT_EQ(stub_->DeleteMatrix(&context, {}, &response).error_code(),
              grpc::UNIMPLEMENTED);
  }
  {
    grpc::ClientContext context;
    v1::UploadMatrixResponse response;
    auto writer = stub_->UploadMatrix(&context, &response);
    v1::UploadMatrixRequest request;
    request.mutable_header()->set_rows(1);
    writer->Write(request);
    writer->WritesDone();
    EXPECT_EQ(writer->Finish().error_code(), grpc::UNIMPLEMENTED);
  }
  {
    grpc::ClientContext context;
    auto reader = stub_->DownloadMatrix(&context, {});
    v1::DownloadMatrixResponse response;
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::UNIMPLEMENTED);
  }
}

TEST_F(ServiceTest, GarbageIsInvalidForEveryMethod) {
  StartServer();
  grpc::GenericStub stub(channel_);
  for (const char* method :
       {"/gemmd.v1.GemmService/Sgemm", "/gemmd.v1.GemmService/GetServerInfo",
        "/grpc.health.v1.Health/Check"}) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::Slice slice("\xff\xff\xff garbage");
    auto call = stub.PrepareUnaryCall(&context, method,
                                      grpc::ByteBuffer(&slice, 1), &queue);
    grpc::ByteBuffer response;
    grpc::Status status;
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag;
    bool ok;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << method;
    EXPECT_NE(status.error_details(), "") << method;
  }
}

TEST_F(ServiceTest, AFloodOfLargeMessagesIsBoundedAndTheServerGoesOn) {
  RpcOptions options;
  options.max_inline_bytes = 5 << 20;
  options.receive_bytes = size_t{20} << 20;  // four messages
  options.copy_threads = 1;
  StartServer(options);
  const v1::SgemmRequest request = Product(1024, 1, 1024);  // 4 MiB
  std::atomic<int> answered = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 24; ++i) {
    clients.emplace_back([&] {
      const auto stub = v1::GemmService::NewStub(
          Connect(absl::StrCat("127.0.0.1:", server_->port())));
      // How soon the messages pile up depends on the machine.
      for (int call = 0; call < 3 || (refused == 0 && call < 100); ++call) {
        grpc::ClientContext context;
        v1::SgemmResponse response;
        ++(stub->Sgemm(&context, request, &response).ok() ? answered : refused);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(answered, 0);
  EXPECT_GT(refused, 0);
  stub_ = v1::GemmService::NewStub(
      Connect(absl::StrCat("127.0.0.1:", server_->port())));
  EXPECT_TRUE(Multiply().ok());
  WaitFor([&] { return backend_->staging().used_bytes() == 0; });
}

TEST_F(ServiceTest, AnOldConnectionIsReplacedWithoutAFailure) {
  RpcOptions options;
  options.max_connection_age = absl::Milliseconds(100);
  StartServer(options);
  for (int i = 0; i < 40; ++i) {
    const absl::Status status = Multiply();
    ASSERT_TRUE(status.ok()) << i << ": " << status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace
}  // namespace gemmd
