// Invariants that only a whole server can break: what outlives what (I5), whose
// bytes are whose (I7), and sizes that no memory could hold.

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/running_server.h"
#include "tests/support/http_get.h"

namespace gemmd {
namespace {

using testing::Eventually;
using testing::RandomRequest;
using testing::RunningServer;
using testing::TestOptions;

grpc::Status Multiply(RunningServer& server, const v1::SgemmRequest& request,
                      v1::SgemmResponse* response) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  return server.gemm().Sgemm(&context, request, response);
}

// The CPU's device, which notes what is still there when it is destroyed.
class LastDevice : public Device {
 public:
  LastDevice(Device* inner, const std::atomic<RunningServer*>* server,
             std::string* seen)
      : inner_(inner), server_(server), seen_(seen) {}
  ~LastDevice() override {
    Server& server = **server_->load();
    const bool grpc = testing::ConnectLoopback(server.grpc_port()) >= 0;
    const bool http = testing::ConnectLoopback(server.http_port()) >= 0;
    *seen_ = absl::StrCat(under_way_.load(), " batches, gRPC ",
                          grpc ? "open" : "closed", ", HTTP ",
                          http ? "open" : "closed");
  }
  const DeviceInfo& info() const override { return inner_->info(); }
  absl::Status Warm() override { return inner_->Warm(); }
  void Execute(Batch batch, BatchDone done) override {
    ++under_way_;
    inner_->Execute(std::move(batch), [this, done = std::move(done)](
                                          const BatchReport& report) mutable {
      --under_way_;
      std::move(done)(report);
    });
  }

 private:
  Device* const inner_;
  const std::atomic<RunningServer*>* const server_;
  std::string* const seen_;
  std::atomic<int> under_way_{0};
};

class LastBackend : public Backend {
 public:
  LastBackend(std::unique_ptr<Backend> inner,
              const std::atomic<RunningServer*>* server, std::string* seen)
      : inner_(std::move(inner)) {
    devices_.push_back(
        std::make_unique<LastDevice>(inner_->devices()[0].get(), server, seen));
  }
  absl::string_view name() const override { return inner_->name(); }
  MemorySpace kernel_space() const override { return inner_->kernel_space(); }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return inner_->staging(); }

 private:
  std::unique_ptr<Backend> inner_;
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST(ServerInvariantsTest, TheBackendGoesAfterAllThatCouldUseIt) {
  std::atomic<RunningServer*> running{nullptr};
  std::string seen;
  RunningServer server(
      TestOptions(),
      [&](const BackendOptions& options, const KernelRegistry& registry)
          -> absl::StatusOr<std::unique_ptr<Backend>> {
        auto inner = CreateBackend(options, registry);
        if (!inner.ok()) return inner.status();
        return std::make_unique<LastBackend>(*std::move(inner), &running,
                                             &seen);
      });
  running.store(&server);
  std::vector<std::future<grpc::Status>> products;
  products.reserve(3);
  for (int i = 0; i < 3; ++i) {
    products.push_back(std::async(std::launch::async, [&server] {
      v1::SgemmResponse response;
      return Multiply(server, testing::SlowRequest(), &response);
    }));
  }
  ASSERT_TRUE(Eventually(
      [&] { return server.Metrics().Value("gemmd_inflight_requests") == 3; }));
  EXPECT_EQ(seen, "");
  EXPECT_TRUE(server->Shutdown().ok());
  EXPECT_EQ(seen, "0 batches, gRPC closed, HTTP closed");
  for (auto& product : products) {
    const grpc::Status status = product.get();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

// Operands of 'A' bytes fill the pools' memory; the products after them are
// looked at byte by byte.
TEST(ServerInvariantsTest, AnAnswerHoldsNothingOfTheRequestsBeforeIt) {
  RunningServer server;
  v1::SgemmRequest secret = RandomRequest(64, 64, 64, 1);
  const std::string values(size_t{64} * 64 * sizeof(float), 'A');
  secret.mutable_a()->set_data(values);
  secret.mutable_b()->set_data(values);
  for (const auto& [m, n, k] : {std::tuple{7, 9, 0}, {33, 65, 1}, {1, 1, 5}}) {
    for (const float alpha : {0.0f, 1.0f}) {
      v1::SgemmResponse response;
      for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(Multiply(server, secret, &response).ok());
      }
      v1::SgemmRequest request = RandomRequest(m, n, k, 2);
      request.set_alpha(alpha);
      const grpc::Status status = Multiply(server, request, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_LE(testing::ErrorRatio(request, response), 1.0);
      if (alpha == 0 || k == 0) {
        EXPECT_EQ(response.c(),
                  std::string(size_t(m) * n * sizeof(float), '\0'));
      }
      EXPECT_THAT(response.SerializeAsString(),
                  Not(::testing::HasSubstr("AAAA")));
    }
  }
}

TEST(ServerInvariantsTest, ProductsOfNothingAreDoneAtOnceWhateverTheirSizes) {
  RunningServer server;
  const uint64_t huge = uint64_t{1} << 62;
  for (const char* kernel : {"auto", "reference", "openblas"}) {
    for (const bool wide : {true, false}) {
      v1::SgemmRequest request;
      request.set_kernel(kernel);
      request.mutable_a()->set_data("");
      request.mutable_b()->set_data("");
      if (wide) {
        request.mutable_b()->set_cols(huge);
      } else {
        request.mutable_a()->set_rows(huge);
      }
      v1::SgemmResponse response;
      const grpc::Status status = Multiply(server, request, &response);
      EXPECT_TRUE(status.ok()) << kernel << ": " << status.error_message();
      EXPECT_EQ(response.c(), "");
    }
  }
}

}  // namespace
}  // namespace gemmd
