// A client that asks and does not read.

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "tests/support/exposition.h"
#include "tests/support/held_proxy.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SlowReaderTest : public RpcFixture,
                       public ::testing::WithParamInterface<std::string> {
 protected:
  // As one client or another.
  static absl::Status Multiply(v1::GemmService::Stub& stub, char client,
                               const v1::SgemmRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("gemmd-client", std::string(32, client));
    v1::SgemmResponse response;
    return FromGrpcStatus(stub.Sgemm(&context, request, &response));
  }
};

TEST_P(SlowReaderTest, HoldsItsShareOfTheBudgetAndIsGoneAfterTheSendTimeout) {
  const std::string path =
      absl::StrCat(::testing::TempDir(), "/gemmd_slow_", getpid(), ".sock");
  const bool is_unix = GetParam() == "unix";
  admission_options_.max_bytes = 60 * kMiB;
  StartServer({.unix_socket = path, .send_timeout = absl::Seconds(1)});
  std::optional<testing::HeldProxy> proxy;
  proxy.emplace(testing::HeldProxy::Options{.to_port = server_->port(),
                                            .to_path = is_unix ? path : ""});
  const auto slow = v1::GemmService::NewStub(
      Connect(absl::StrCat("127.0.0.1:", proxy->port())));
  const v1::SgemmRequest small = Product(8, 8, 8);
  ASSERT_TRUE(Multiply(*slow, 'a', small).ok());

  // Answers of 4 MiB, 160 MiB in all, to requests of 8 KiB.
  proxy->StopReading();
  constexpr int kCalls = 40;
  const v1::SgemmRequest large = Product(1024, 1024, 1);
  std::vector<std::future<absl::Status>> calls;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::async(std::launch::async,
                               [&] { return Multiply(*slow, 'a', large); }));
  }
  WaitFor([&] { return admission_->bytes() > 20 * kMiB; });
  size_t most = 0;
  for (int i = 0; i < 20; ++i) {  // nobody else is held up
    const absl::Status status = Multiply(*stub_, 'b', small);
    EXPECT_TRUE(status.ok()) << status;
    most = std::max(most, admission_->bytes());
  }
  EXPECT_LE(most, admission_options_.max_bytes / 5 * 4 + kMiB);
  ExpectNothingHeld();
  WaitFor([&] {
    return testing::ParseExposition(metrics_.Render())
               .Sum("grpc_server_call_completed_total", "CANCELLED") > 0;
  });
  // Not every system tells a peer that takes nothing that its connection is no
  // more.
  proxy.reset();
  for (auto& call : calls) {
    EXPECT_EQ(call.get().code(), absl::StatusCode::kUnavailable);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, SlowReaderTest,
                         ::testing::Values("tcp", "unix"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gemmd
