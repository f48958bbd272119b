// A client that asks and does not read.

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/status.h"
#include "tests/support/held_proxy.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace gemmd {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class SlowReaderTest : public RpcFixture {
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

TEST_F(SlowReaderTest, HoldsItsShareOfTheBudgetAndIsGoneAfterTheSendTimeout) {
  admission_options_.max_bytes = 60 * kMiB;
  StartServer({.send_timeout = absl::Seconds(1)});
  std::optional<testing::HeldProxy> proxy;
  proxy.emplace(server_->port(), /*pass_bytes=*/1024 * kMiB);
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
  // Not every system tells a peer that takes nothing that its connection is no
  // more.
  proxy.reset();
  for (auto& call : calls) {
    EXPECT_EQ(call.get().code(), absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace gemmd
