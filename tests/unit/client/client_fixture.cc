#include "tests/unit/client/client_fixture.h"

#include <atomic>
#include <memory>

#include "absl/time/clock.h"
#include "tests/support/client_matrices.h"

namespace gemmd {

std::vector<float> Expected(const Matrix& a, const Matrix& b) {
  std::vector<float> c(a.rows() * b.cols());
  for (int64_t i = 0; i < a.rows(); ++i) {
    for (int64_t j = 0; j < b.cols(); ++j) {
      double sum = 0;
      for (int64_t l = 0; l < a.cols(); ++l) sum += double{a(i, l)} * b(l, j);
      c[i * b.cols() + j] = static_cast<float>(sum);
    }
  }
  return c;
}

bool SameBits(const Matrix& c, const std::vector<float>& expected) {
  const int64_t count = c.rows() * c.cols();
  return static_cast<size_t>(count) == expected.size() &&
         SameBits(c.data(), expected.data(), count);
}

absl::Status Answer(grpc::ServerContext&, const v1::SgemmRequest& request,
                    v1::SgemmResponse* response) {
  Multiply(request, response);
  return absl::OkStatus();
}

FakeServer::Handler FailTimes(int times, absl::Status error) {
  auto left = std::make_shared<std::atomic<int>>(times);
  return [left, error](grpc::ServerContext& context,
                       const v1::SgemmRequest& request,
                       v1::SgemmResponse* response) {
    if (left->fetch_sub(1) > 0) return error;
    return Answer(context, request, response);
  };
}

std::unique_ptr<Client> NewClient(const ClientOptions& options) {
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

int CancelledByDestruction(std::unique_ptr<Client> client, int products) {
  const Matrix a = RandomMatrix(2, 2);
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < products; ++i) {
    client->SgemmAsync({.a = a.view(), .b = a.view()},
                       [&](absl::StatusOr<SgemmAnswer> answer) {
                         cancelled += absl::IsCancelled(answer.status());
                       });
  }
  client.reset();
  return cancelled;
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

RetryPolicy QuickRetries() {
  return {.max_attempts = 4,
          .initial_backoff = absl::Milliseconds(1),
          .max_backoff = absl::Milliseconds(4)};
}

}  // namespace gemmd
