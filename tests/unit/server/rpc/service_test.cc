// The server beside Sgemm: ports, health, information, drain, shutdown.

#include "server/rpc/service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "proto/error_details.h"
#include "proto/status.h"
#include "server/observe/logging.h"
#include "tests/support/held_proxy.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

MonotonicTime In(std::chrono::milliseconds time) {
  return MonotonicClock::now() + time;
}

class ServiceTest : public RpcFixture {
 protected:
  ServiceTest() {
    std::string path = ::testing::TempDir() + "/gemmd_rpc_XXXXXX";
    directory_ = mkdtemp(path.data());
  }

  ~ServiceTest() override {
    unlink(SocketPath().c_str());
    rmdir(directory_.c_str());
  }

  std::string SocketPath() const { return directory_ + "/socket"; }

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

  // How many calls of a method have begun.
  int Begun(const std::string& method) const {
    const std::string metrics = metrics_.Render();
    const std::string series = absl::StrCat(
        "grpc_server_call_started_total{grpc_method=\"gemmd.v1.GemmService/",
        method, "\"} ");
    const size_t at = metrics.find(series);
    return at == std::string::npos
               ? -1
               : std::stoi(metrics.substr(at + series.size()));
  }

  absl::Status Multiply() {
    grpc::ClientContext context;
    v1::SgemmResponse response;
    return FromGrpcStatus(stub_->Sgemm(&context, Product(3, 4, 5), &response));
  }

  std::string directory_;
};

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

TEST_F(ServiceTest, HealthFollowsServingAndIsAlwaysLive) {
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

TEST_F(ServiceTest, WatchTellsEachChangeAndTheEnd) {
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

TEST_F(ServiceTest, WatchingAnUnknownServiceSaysSo) {
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

TEST_F(ServiceTest, ManyWatchersMayComeAndGo) {
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
      : proxy(server_port, request.ByteSizeLong() / 2),
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
