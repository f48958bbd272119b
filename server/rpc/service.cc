#include "server/rpc/service.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/shared_memory.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/completion_loop.h"
#include "server/rpc/credentials.h"
#include "server/rpc/download_call.h"
#include "server/rpc/goodbye.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/health_calls.h"
#include "server/rpc/info_call.h"
#include "server/rpc/listening.h"
#include "server/rpc/matrix_calls.h"
#include "server/rpc/region_socket.h"
#include "server/rpc/server_info.h"
#include "server/rpc/sgemm_call.h"
#include "server/rpc/stalled_connections.h"
#include "server/rpc/stream_call.h"
#include "server/rpc/upload_call.h"

namespace gemmd {
namespace {

constexpr size_t kMinInlineBytes = size_t{64} << 10;
constexpr size_t kMaxInlineBytes = size_t{1900} << 20;

// A message somewhat over the limit is received, so that its sender is told of
// the flag; far over it, gRPC refuses it with less to say.
constexpr size_t kReceiveMarginBytes = size_t{16} << 20;

// A client that was stopped, or whose host is gone, is noticed after about
// this; a client may ping as often as kClientPingPeriod.
constexpr absl::Duration kKeepalivePeriod = absl::Seconds(30);
constexpr absl::Duration kClientPingPeriod = absl::Seconds(5);

// How long calls of a connection past its age may still take.
constexpr absl::Duration kConnectionAgeGrace = absl::Minutes(5);

// At most what gRPC's int holds, 24 days.
int Milliseconds(absl::Duration duration) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(absl::ToInt64Milliseconds(duration), kMost));
}

absl::Status CheckOptions(const RpcOptions& options) {
  if (options.max_inline_bytes < kMinInlineBytes ||
      options.max_inline_bytes > kMaxInlineBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-inline-bytes is ", options.max_inline_bytes, "; from ",
        kMinInlineBytes, " to ", kMaxInlineBytes, " is possible"));
  }
  if (options.max_inline_bytes > options.receive_bytes / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-inline-bytes is ", options.max_inline_bytes, "; at most ",
        options.receive_bytes / 2,
        " is possible here: messages being received "
        "may take ",
        options.receive_bytes,
        " bytes (a quarter of the "
        "container's memory, at most 4 GiB), and two must have room"));
  }
  if (options.max_streams < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-streams is ", options.max_streams, "; at least 1 is wanted"));
  }
  if (options.listen.empty() && options.unix_socket.empty()) {
    return absl::InvalidArgumentError(
        "neither --listen nor --unix-socket is given; one is wanted");
  }
  if (options.shared_memory && options.unix_socket.empty()) {
    return absl::InvalidArgumentError(
        "--shared-memory is for clients of the unix socket; give --unix-socket "
        "too");
  }
  return absl::OkStatus();
}

// Whether a polling thread that has more to do does well to leave products to
// another: a device that computes on the host's cores, and more of them than
// this thread and a client's, or the device's, keep busy. Looking costs.
bool MayHandOver(const RpcDependencies& dependencies) {
  return dependencies.backend->kernel_space() == MemorySpace::kHost &&
         std::thread::hardware_concurrency() > 2;
}

int CopyThreads(const RpcOptions& options) {
  if (options.copy_threads > 0) return options.copy_threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2,
                    1, 8);
}

void Configure(const RpcOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(options.max_inline_bytes + kReceiveMarginBytes));
  grpc::ResourceQuota quota("gemmd");
  quota.Resize(options.receive_bytes);
  builder.SetResourceQuota(quota);
  // Matrices do not compress, and a compressed message can unfold to a thousand
  // times what was received.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // With it two servers would share one port without a word.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             options.max_streams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             Milliseconds(kKeepalivePeriod));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.send_timeout));
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      Milliseconds(kClientPingPeriod));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  if (options.max_connection_age != absl::InfiniteDuration()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               Milliseconds(options.max_connection_age));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                               Milliseconds(kConnectionAgeGrace));
  }
}

// gRPC's plugins are for all servers of the process, once.
void InitPlugins(bool channelz) {
  static const bool reflection = [] {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  static_cast<void>(reflection);
  if (channelz) {
    static const bool once = [] {
      grpc::channelz::experimental::InitChannelzService();
      return true;
    }();
    static_cast<void>(once);
  }
}

class RpcServerImpl final : public RpcServer {
 public:
  RpcServerImpl(const RpcOptions& options, const RpcDependencies& dependencies)
      : environment_(options, dependencies, CopyThreads(options)) {}
  ~RpcServerImpl() override;

  absl::Status Open();

  int port() const override { return port_; }
  void SetServing(bool serving) override {
    environment_.health.SetServing(serving);
  }
  void RefuseNew(MonotonicTime deadline) override {
    environment_.refusing.store(true);
    environment_.streams.DrainAll();
    environment_.decoding.WaitForNoneUntil(deadline);
  }
  bool Shutdown(MonotonicTime deadline) override;

 private:
  bool WaitForCalls(MonotonicTime deadline);
  void EndLoops();

  CallEnvironment environment_;
  std::unique_ptr<RegionSocket> region_socket_;
  int port_ = 0;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // as long as server_
  std::unique_ptr<grpc::Server> server_;
  Gatherers gatherers_{
      [this] { environment_.dependencies.scheduler->Release(); }};
  std::vector<std::unique_ptr<CompletionLoop>> loops_;
  std::optional<StallWatch> stall_watch_;
  bool shut_down_ = false;
  const PortWatch port_watch_{[this](absl::string_view reason) {
    const auto& lost = environment_.dependencies.port_lost;
    if (!lost) return;
    environment_.workers.Post(
        [&lost, reason = std::string(reason)] { lost(reason); });
  }};
};

absl::Status RpcServerImpl::Open() {
  const RpcOptions& options = environment_.options;
  v1::GetServerInfoResponse info =
      DescribeServer(options, environment_.dependencies);
  environment_.server_info = grpc::Slice(info.SerializeAsString());
  if (options.shared_memory) {
    info.mutable_limits()->set_shared_memory(true);
    environment_.local_server_info = grpc::Slice(info.SerializeAsString());
    environment_.regions = std::make_unique<SharedRegions>(
        SharedRegionsOptions{}, environment_.dependencies.backend);
    auto socket = RegionSocket::Listen(
        absl::StrCat(options.unix_socket, kSharedMemorySuffix),
        environment_.regions.get());
    if (!socket.ok()) return socket.status();
    region_socket_ = *std::move(socket);
  }

  RouteGrpcLog();
  InitPlugins(options.channelz);
  grpc::ServerBuilder builder;
  Configure(options, builder);
  if (!options.listen.empty()) {
    auto credentials = MakeServerCredentials(options.tls);
    if (!credentials.ok()) return credentials.status();
    credentials_ = *std::move(credentials);
    builder.AddListeningPort(options.listen, credentials_, &port_);
  }
  if (!options.unix_socket.empty()) {
    builder.AddListeningPort(absl::StrCat("unix:", options.unix_socket),
                             grpc::InsecureServerCredentials());
  }
  builder.RegisterService(&environment_.gemm_service);
  builder.RegisterService(&environment_.health_service);
  const int queues = std::max(1, options.completion_queues);
  for (int i = 0; i < queues; ++i) {
    loops_.push_back(std::make_unique<CompletionLoop>(
        builder.AddCompletionQueue(),
        CompletionLoopOptions{
            .busy_poll = absl::ToChronoNanoseconds(options.busy_poll),
            .gatherers = options.gathers_rows ? &gatherers_ : nullptr,
            .looks_ahead = MayHandOver(environment_.dependencies),
            .takes_ends = queues > 1}));
  }
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", options.listen, " ", options.unix_socket,
        ": taken a moment ago, or no socket "
        "can be made there"));
  }
  for (const auto& loop : loops_) {
    OfferSgemmCalls(&environment_, loop->queue());
    OfferInfoCalls(&environment_, loop->queue());
    OfferStreamCalls(&environment_, loop->queue());
    OfferUploadCalls(&environment_, loop->queue());
    OfferDownloadCalls(&environment_, loop->queue());
    OfferMatrixCalls(&environment_, loop->queue());
    OfferHealthCalls(&environment_, loop->queue());
    loop->Start();
  }
  if (!options.unix_socket.empty()) {
    stall_watch_.emplace(options.unix_socket,
                         absl::ToChronoNanoseconds(options.send_timeout));
  }
  return absl::OkStatus();
}

bool RpcServerImpl::Shutdown(MonotonicTime deadline) {
  if (server_ == nullptr || std::exchange(shut_down_, true)) return true;
  RefuseNew(deadline);
  environment_.health.SetServing(false);
  environment_.health.EndAll();
  // The calls are waited for here and not by gRPC: its Shutdown also waits for
  // every connection to say goodbye, and a client that is idle (or stopped)
  // takes seconds or for ever to do so.
  const bool in_time = environment_.awaited.WaitForNoneUntil(deadline);
  // Cancels what is left, which ends its tasks, which posts their Finish; only
  // when the last call is gone may the queues be shut down.
  // gRPC complains of the sockets that are taken from it.
  const QuietGrpcLog quiet;
  stall_watch_.reset();
  EndConnections(
      {.port = port_, .unix_socket = environment_.options.unix_socket},
      deadline);
  server_->Shutdown(std::chrono::system_clock::now());
  if (!WaitForCalls(deadline)) return false;
  EndLoops();
  return in_time;
}

// Until the last has ended; where a device is stuck in what one waits for,
// until the deadline.
bool RpcServerImpl::WaitForCalls(MonotonicTime deadline) {
  constexpr auto kLook = std::chrono::milliseconds(50);
  const RpcDependencies& dependencies = environment_.dependencies;
  while (!environment_.calls.WaitForNoneUntil(MonotonicClock::now() + kLook)) {
    const bool stuck =
        dependencies.scheduler->stuck() ||
        (dependencies.store != nullptr && dependencies.store->stuck());
    if (stuck && MonotonicClock::now() >= deadline) return false;
  }
  return true;
}

void RpcServerImpl::EndLoops() {
  environment_.calls.WaitForNone();
  environment_.decoding.WaitForNone();  // a device's thread may be about to end
  loops_.clear();
  region_socket_.reset();
}

RpcServerImpl::~RpcServerImpl() {
  Shutdown(MonotonicClock::now());
  if (server_ != nullptr) EndLoops();
  server_.reset();
  environment_.answers.WaitForNone();
}

}  // namespace

absl::Status RpcServer::Check(const RpcOptions& options) {
  absl::Status status = CheckOptions(options);
  if (status.ok() && !options.listen.empty()) {
    status = CheckTcpAddress(options.listen);
  }
  if (status.ok() && !options.unix_socket.empty()) {
    status = CheckUnixSocketPath(options.unix_socket);
  }
  return status;
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const RpcOptions& options, const RpcDependencies& dependencies) {
  if (absl::Status s = Check(options); !s.ok()) return s;
  auto server = std::make_unique<RpcServerImpl>(options, dependencies);
  if (absl::Status s = server->Open(); !s.ok()) return s;
  return server;
}

}  // namespace gemmd
