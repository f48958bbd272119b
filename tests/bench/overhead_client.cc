// One product over gRPC against what it could cost at least: an echo of the
// same bytes, and the same BLAS call in this process.
//
//   gemmd_overhead_client GEMMD ECHO N ROUNDS     (targets as unix:PATH)
//
// Each round measures the three one after the other, with a pause between, so
// that all see the same machine and the BLAS library's threads have gone to
// sleep. One line a measurement: median, then the ratio
// gemmd / (echo + BLAS). Exits with 1 when a call fails.

#include <cblas.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gemmd/v1/sgemm.pb.h"
#include "server/rpc/malloc_settings.h"

namespace gemmd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpRounds = 5;
constexpr auto kPause = std::chrono::milliseconds(100);

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start)
      .count();
}

// Unary calls of raw bytes, one at a time.
class RawClient {
 public:
  RawClient(const std::string& target, std::string method)
      : method_(std::move(method)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = std::make_unique<grpc::GenericStub>(grpc::CreateCustomChannel(
        target, grpc::InsecureChannelCredentials(), arguments));
  }

  // Milliseconds; ends the program if the call fails.
  double Call(const grpc::ByteBuffer& request, size_t echo_bytes,
              grpc::ByteBuffer* answer) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.AddMetadata("echo-bytes", std::to_string(echo_bytes));
    grpc::Status status;
    const Clock::time_point start = Clock::now();
    auto call = stub_->PrepareUnaryCall(&context, method_, request, &queue_);
    call->StartCall();
    call->Finish(answer, &status, nullptr);
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
    const double milliseconds = MillisecondsSince(start);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", method_.c_str(),
                   status.error_message().c_str());
      std::exit(1);
    }
    return milliseconds;
  }

 private:
  const std::string method_;
  std::unique_ptr<grpc::GenericStub> stub_;
  grpc::CompletionQueue queue_;
};

std::vector<float> RandomMatrix(int n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(size_t{1} * n * n);
  for (float& value : values) value = uniform(random);
  return values;
}

grpc::ByteBuffer ProductRequest(int n, const std::vector<float>& a,
                                const std::vector<float>& b) {
  v1::SgemmRequest request;
  const auto set = [n](const std::vector<float>& x, v1::Operand& operand) {
    operand.set_rows(n);
    operand.set_cols(n);
    operand.set_data(x.data(), x.size() * sizeof(float));
  };
  set(a, *request.mutable_a());
  set(b, *request.mutable_b());
  grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

v1::Execution ExecutionOf(grpc::ByteBuffer* answer) {
  v1::SgemmResponse response;
  grpc::SerializationTraits<v1::SgemmResponse>::Deserialize(answer, &response);
  return response.execution();
}

// Of the measured rounds.
double Median(std::vector<double> values) {
  values.erase(values.begin(), values.begin() + kWarmUpRounds);
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

int Main(const std::string& gemmd_target, const std::string& echo_target, int n,
         int rounds) {
  ConfigureMalloc();
  RawClient gemmd(gemmd_target, "/gemmd.v1.GemmService/Sgemm");
  RawClient echo(echo_target, "/echo");
  const std::vector<float> a = RandomMatrix(n, 1);
  const std::vector<float> b = RandomMatrix(n, 2);
  std::vector<float> c(a.size());
  const grpc::ByteBuffer request = ProductRequest(n, a, b);
  std::vector<double> product_ms, echo_ms, blas_ms, decode_ms, compute_ms;
  for (int round = -kWarmUpRounds; round < rounds; ++round) {
    grpc::ByteBuffer product, echoed;
    std::this_thread::sleep_for(kPause);
    product_ms.push_back(gemmd.Call(request, 0, &product));
    const size_t answer_bytes = product.Length();
    std::this_thread::sleep_for(kPause);
    echo_ms.push_back(echo.Call(request, answer_bytes, &echoed));
    if (echoed.Length() != answer_bytes) return 1;
    std::this_thread::sleep_for(kPause);
    const Clock::time_point start = Clock::now();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0f,
                a.data(), n, b.data(), n, 0.0f, c.data(), n);
    blas_ms.push_back(MillisecondsSince(start));
    const v1::Execution execution = ExecutionOf(&product);
    decode_ms.push_back(1e3 * execution.decode_seconds());
    compute_ms.push_back(1e3 * execution.compute_seconds());
  }
  const double product = Median(product_ms);
  const double echoed = Median(echo_ms);
  const double blas = Median(blas_ms);
  std::printf("n %d, %zu bytes in, %d rounds, medians\n", n, request.Length(),
              rounds);
  std::printf("gemmd  %8.3f ms (decode %.3f, compute %.3f)\n", product,
              Median(decode_ms), Median(compute_ms));
  std::printf("echo   %8.3f ms\nblas   %8.3f ms\n", echoed, blas);
  std::printf("ratio  %8.3f   gemmd / (echo + blas)\n",
              product / (echoed + blas));
  return 0;
}

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: gemmd_overhead_client GEMMD ECHO N ROUNDS\n");
    return 2;
  }
  return gemmd::Main(argv[1], argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
}
