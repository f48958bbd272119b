#include "tests/integration/running_server.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/observe/logging.h"
#include "tests/support/http_get.h"

namespace gemmd::testing {

ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.http_listen = "127.0.0.1:0";
  options.backend = "cpu";
  options.drain_timeout = absl::Seconds(20);
  options.pinned_pool_bytes = size_t{256} << 20;
  return options;
}

RunningServer::RunningServer(const ServerOptions& options,
                             Server::BackendFactory backend) {
  EXPECT_TRUE(InitLogging("error", "text").ok());
  auto server = Server::Start(options, std::move(backend));
  if (!server.ok()) {
    ADD_FAILURE() << server.status();
    std::abort();
  }
  server_ = *std::move(server);
  channel_ = Connect();
  gemm_ = v1::GemmService::NewStub(channel_);
  health_ = grpc::health::v1::Health::NewStub(channel_);
}

std::shared_ptr<grpc::Channel> RunningServer::Connect() const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  // Channels to one address share a connection otherwise.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(
      absl::StrCat("127.0.0.1:", server_->grpc_port()),
      grpc::InsecureChannelCredentials(), arguments);
}

Exposition RunningServer::Metrics() const {
  return ParseExposition(HttpGet(server_->http_port(), "/metrics").body);
}

RunningServer::Calls RunningServer::SettledCalls(
    const std::string& part_of_series) const {
  Calls calls;
  Eventually([&] {
    const Calls before = calls;
    const Exposition metrics = Metrics();
    calls.started =
        metrics.Sum("grpc_server_call_started_total", part_of_series);
    calls.completed =
        metrics.Sum("grpc_server_call_completed_total", part_of_series);
    return calls.started == calls.completed && calls.started == before.started;
  });
  return calls;
}

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& request,
                     std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  auto call = stub.PrepareUnaryCall(&context, method,
                                    grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  if (response != nullptr && status.ok()) {
    std::vector<grpc::Slice> slices;
    answer.Dump(&slices).ok();
    for (const grpc::Slice& piece : slices) {
      response->append(reinterpret_cast<const char*>(piece.begin()),
                       piece.size());
    }
  }
  return status;
}

namespace {

void FillOperand(int64_t rows, int64_t cols, std::mt19937_64& random,
                 v1::Operand* operand) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(rows * cols);
  for (float& value : values) value = uniform(random);
  operand->set_rows(rows);
  operand->set_cols(cols);
  operand->set_data(std::string(reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float)));
}

// The packed matrix of an operand or an answer.
struct Matrix {
  Matrix(const std::string& data, int64_t cols_)
      : values(data.size() / sizeof(float)), cols(cols_) {
    if (!values.empty()) {
      std::memcpy(values.data(), data.data(), data.size());
    }
  }
  double at(int64_t row, int64_t col, bool transposed = false) const {
    return transposed ? values[col * cols + row] : values[row * cols + col];
  }
  std::vector<float> values;
  int64_t cols;
};

}  // namespace

v1::SgemmRequest RandomRequest(int64_t m, int64_t n, int64_t k, uint64_t seed,
                               float beta, bool transpose_a, bool transpose_b) {
  std::mt19937_64 random(seed);
  v1::SgemmRequest request;
  FillOperand(transpose_a ? k : m, transpose_a ? m : k, random,
              request.mutable_a());
  FillOperand(transpose_b ? n : k, transpose_b ? k : n, random,
              request.mutable_b());
  request.set_transpose_a(transpose_a);
  request.set_transpose_b(transpose_b);
  if (beta != 0) {
    request.set_beta(beta);
    FillOperand(m, n, random, request.mutable_c());
  }
  return request;
}

v1::SgemmRequest SlowRequest() {
  v1::SgemmRequest request = RandomRequest(800, 800, 800, 1);
  request.set_kernel("reference");
  return request;
}

double ErrorRatio(const v1::SgemmRequest& request,
                  const v1::SgemmResponse& response) {
  const bool ta = request.transpose_a(), tb = request.transpose_b();
  const auto& a = request.a();
  const auto& b = request.b();
  const int64_t m = ta ? a.cols() : a.rows(), k = ta ? a.rows() : a.cols();
  const int64_t n = tb ? b.rows() : b.cols();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (response.rows() != static_cast<uint64_t>(m) ||
      response.cols() != static_cast<uint64_t>(n) ||
      response.c().size() != m * n * sizeof(float)) {
    return nan;
  }
  const double alpha = request.has_alpha() ? request.alpha() : 1;
  const double beta = request.beta();
  const Matrix ma(a.data(), a.cols()), mb(b.data(), b.cols());
  const Matrix mc(request.c().data(), n), result(response.c(), n);
  const double unit = (k + 4) * std::ldexp(1.0, -24);
  double worst = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double product = ma.at(i, l, ta) * mb.at(l, j, tb);
        sum += product;
        magnitude += std::abs(product);
      }
      const double c = beta == 0 ? 0 : beta * mc.at(i, j);
      const double bound = unit * (std::abs(alpha) * magnitude + std::abs(c)) +
                           std::numeric_limits<float>::min();
      const double error = std::abs(result.at(i, j) - (alpha * sum + c));
      if (!(error / bound <= worst)) worst = error / bound;
      if (std::isnan(worst)) return nan;
    }
  }
  return worst;
}

}  // namespace gemmd::testing
