#include "tests/unit/server/rpc/rpc_fixture.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/reference.h"
#include "server/execute/cpu/cpu_backend.h"

namespace gemmd {
namespace {

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void FillOperand(std::mt19937_64& random, int rows, int cols,
                 v1::Operand& operand) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  operand.set_rows(rows);
  operand.set_cols(cols);
  std::string& data = *operand.mutable_data();
  data.resize(sizeof(float) * rows * cols);
  for (size_t i = 0; i < data.size(); i += sizeof(float)) {
    const float value = uniform(random);
    std::memcpy(&data[i], &value, sizeof(float));
  }
}

}  // namespace

RpcFixture::RpcFixture() {
  BackendOptions options;
  options.staging_bytes = size_t{1} << 30;
  options.resident_bytes = kStoreBytes;
  backend_ = std::make_unique<GatedBackend>(
      CreateCpuBackend(options, registry_).value());
  metrics_.SetDevice(backend_->devices()[0]->info(), /*up=*/true);
  store_ = MatrixStore::Create({}, *backend_, nullptr);
}

RpcFixture::~RpcFixture() {
  backend_->gate().Open();
  backend_->gate().OpenCopies();
  if (scheduler_ != nullptr) {
    scheduler_->Drain(MonotonicClock::now() + std::chrono::seconds(10));
  }
  server_.reset();
  scheduler_.reset();
  store_.reset();
}

void RpcFixture::ExpectNothingHeld() {
  WaitFor([&] {
    return admission_->requests() == 0 && admission_->bytes() == 0 &&
           backend_->staging().used_bytes() == 0;
  });
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcFixture::TryStart(
    RpcOptions options) {
  if (scheduler_ == nullptr) {
    admission_ = std::make_unique<Admission>(admission_options_);
    scheduler_ = BatchScheduler::Create(scheduler_options_, backend_->devices(),
                                        &metrics_);
  }
  return RpcServer::Start(options, {.scheduler = scheduler_.get(),
                                    .backend = backend_.get(),
                                    .registry = &registry_,
                                    .admission = admission_.get(),
                                    .metrics = &metrics_,
                                    .store = store_.get(),
                                    .request_log = request_log_.get(),
                                    .port_lost = port_lost_});
}

void RpcFixture::StartServer(RpcOptions options) {
  options.listen = "127.0.0.1:0";
  if (const char* queues = std::getenv("GEMMD_TEST_COMPLETION_QUEUES")) {
    options.completion_queues = std::atoi(queues);
  }
  auto server = TryStart(std::move(options));
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  channel_ = Connect(absl::StrCat("127.0.0.1:", server_->port()));
  stub_ = v1::GemmService::NewStub(channel_);
}

std::shared_ptr<grpc::Channel> RpcFixture::Connect(
    const std::string& target) const {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // Two channels of one test are two connections.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   arguments);
}

void RpcFixture::WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "waited for 10 s in vain";
}

v1::SgemmRequest RpcFixture::Product(int m, int n, int k, uint64_t seed) {
  std::mt19937_64 random(seed);
  v1::SgemmRequest request;
  FillOperand(random, m, k, *request.mutable_a());
  FillOperand(random, k, n, *request.mutable_b());
  return request;
}

void RpcFixture::ExpectProduct(const v1::SgemmRequest& request,
                               const v1::SgemmResponse& response) {
  const std::vector<float> a = Floats(request.a().data());
  const std::vector<float> b = Floats(request.b().data());
  const std::vector<float> c = Floats(response.c());
  SgemmArgs args;
  args.shape = {.m = static_cast<int64_t>(request.a().rows()),
                .n = static_cast<int64_t>(request.b().cols()),
                .k = static_cast<int64_t>(request.a().cols())};
  args.a = a.data();
  args.lda = args.shape.k;
  args.b = b.data();
  args.ldb = args.shape.n;
  args.ldc = args.shape.n;
  const ReferenceProduct reference = ComputeReference(args);
  ASSERT_EQ(response.rows(), request.a().rows());
  ASSERT_EQ(response.cols(), request.b().cols());
  ASSERT_EQ(c.size(), reference.value.size());
  for (size_t i = 0; i < c.size(); ++i) {
    // Written so that a NaN fails.
    ASSERT_TRUE(std::abs(c[i] - reference.value[i]) <=
                Fp32ErrorBound(args.shape.k, reference.magnitude[i]))
        << "element " << i << " is " << c[i] << ", wanted "
        << reference.value[i];
  }
}

}  // namespace gemmd
