#include "server/server.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/registry.h"
#include "server/auth/access_file.h"
#include "server/auth/tls_files.h"
#include "server/execute/backend.h"
#include "server/execute/memory_limit.h"
#include "server/monotonic_time.h"
#include "server/mutex.h"
#include "server/observe/event_log.h"
#include "server/observe/http_server.h"
#include "server/observe/logging.h"
#include "server/observe/metrics.h"
#include "server/observe/store_metrics.h"
#include "server/part_options.h"
#include "server/rpc/service.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"
#include "server/server_state.h"
#include "server/start_log.h"
#include "server/status_pages.h"
#include "server/store/matrix_store.h"
#include "server/store/request_log.h"
#include "server/tune.h"
#include "server/warm_up.h"

namespace gemmd {
namespace {

class GemmServer : public Server,
                   private BatchObserver,
                   private MatrixStoreObserver {
 public:
  explicit GemmServer(const ServerOptions& options)
      : options_(options), admission_(AdmissionOptionsOf(options)) {}

  ~GemmServer() override { (void)Shutdown(); }

  absl::Status Start(BackendFactory make_backend);

  int grpc_port() const override { return grpc_port_; }
  int http_port() const override { return http_port_; }
  std::string ListeningLines() const override {
    return gemmd::ListeningLines(options_, grpc_port_, http_port_);
  }

  void Wait() override { state_.WaitForDrain(); }

  void RequestShutdown() override { BeginDrain(absl::OkStatus()); }
  void Reload(absl::string_view log_level) override;

  absl::Status Shutdown() override;

 private:
  absl::Status StartAccess();
  absl::Status StartHttp();
  void StartKernels();
  absl::Status StartDevices(BackendFactory make_backend);
  void StartStore();
  absl::Status StartRpc();

  // Turns health to NOT_SERVING and wakes Wait. The first fault is kept.
  void BeginDrain(const absl::Status& fault);
  std::string RenderMetrics();

  void OnBatch(const Batch& batch, const BatchReport& report) override {
    metrics_->OnBatch(batch, report);
    if (report.launch_status.ok()) return;
    LogFailedLaunch(batch.kernel->info().name, report.device,
                    report.launch_status);
  }
  void OnQueueDepth(int requests, size_t bytes) override {
    metrics_->OnQueueDepth(requests, bytes);
  }
  void OnStreams(int device, int change) override {
    metrics_->OnStreams(device, change);
  }
  void OnRemoved(Removal why) override { store_metrics_->OnRemoved(why); }
  void OnDeviceFault(int device, const absl::Status& status) override;
  void OnPortLost(const std::string& reason);

  // In the order of the wiring: each part uses those above it, and is taken
  // down before them.
  const ServerOptions options_;
  int grpc_port_ = 0;  // both constant after Start
  int http_port_ = 0;
  std::optional<KernelRegistry> registry_;
  std::unique_ptr<Metrics> metrics_;  // set once, under mu_: HTTP looks at it
  Admission admission_;
  std::unique_ptr<AccessFile> access_;  // null: everybody may call
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<MatrixStore> store_;
  std::shared_ptr<StoreMetrics> store_metrics_;  // set before the first call
  const std::unique_ptr<RequestLog> request_log_ = RequestLog::Create();
  std::unique_ptr<BatchScheduler> scheduler_;
  std::unique_ptr<RpcServer> rpc_;

  ServerState state_;

  Mutex mu_;  // held over a change of state_ and what is told of it
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
};

absl::Status GemmServer::Start(BackendFactory make_backend) {
  // Before devices take their time.
  absl::Status status =
      RpcServer::Check(RpcOptionsOf(options_, ContainerMemoryLimit()));
  // First, so that probes are answered while drivers load and devices warm up.
  if (status.ok()) status = StartAccess();
  if (status.ok()) status = StartHttp();
  if (!status.ok()) return status;
  StartKernels();
  status = StartDevices(std::move(make_backend));
  if (!status.ok()) return status;
  StartStore();
  status = StartRpc();
  if (!status.ok()) return status;
  MutexLock lock(&mu_);
  if (state_.Serve()) {
    rpc_->SetServing(true);
    metrics_->SetReady(true);
  }
  return absl::OkStatus();
}

// What can be wrong with files is said before devices warm up.
absl::Status GemmServer::StartAccess() {
  if (const TlsFiles files = TlsFilesOf(options_); files.any()) {
    absl::Status status = ReadTlsFiles(files, absl::Now()).status();
    if (!status.ok()) return status;
  }
  if (options_.auth_token_file.empty()) return absl::OkStatus();
  auto access = AccessFile::Open(options_.auth_token_file);
  if (!access.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--auth-token-file: ", access.status().message()));
  }
  access_ = *std::move(access);
  return absl::OkStatus();
}

absl::Status GemmServer::StartHttp() {
  if (options_.http_listen.empty()) return absl::OkStatus();
  auto http = HttpServer::Start(
      options_.http_listen,
      StatusPages([this] { return state_.NotReadyReason(); },
                  options_.metrics ? [this] { return RenderMetrics(); }
                                   : std::function<std::string()>()));
  if (!http.ok()) return http.status();
  http_ = *std::move(http);
  http_port_ = http_->port();
  return absl::OkStatus();
}

void GemmServer::StartKernels() {
  // On a device that will be used: of several the first may be the sick one.
  const std::vector<int> devices = DevicesFor(BackendOptionsOf(options_));
  registry_.emplace(
      KernelRegistry::Create(devices.empty() ? 0 : devices.front()));
  UseSelectionCache(options_, &*registry_);
  auto metrics = std::make_unique<Metrics>(options_.metrics, *registry_);
  metrics->SetQueueCapacity(options_.queue_max_requests);
  MutexLock lock(&mu_);
  metrics_ = std::move(metrics);
}

absl::Status GemmServer::StartDevices(BackendFactory make_backend) {
  BackendOptions backend_options = BackendOptionsOf(options_);
  backend_options.warn = [](absl::string_view reason) {
    Log(LogLevel::kWarn, "a GPU is not used",
        {{"reason", std::string(reason)}});
  };
  auto backend = make_backend(backend_options, *registry_);
  if (!backend.ok()) return backend.status();
  backend_ = *std::move(backend);
  absl::Status status = CheckKernelOption(options_, *registry_, *backend_);
  if (!status.ok()) return status;
  // Not before, so that a start that is refused is one line.
  LogStarting();
  LogUnavailableKernels(*registry_);
  status = WarmDevices(*backend_, *metrics_);
  if (!status.ok()) return status;
  // Rendered while HTTP is up, which goes before both.
  metrics_->AddMemory(
      "gemmd_held",
      "Bytes of the products held, from their decoding to the "
      "last byte of their answers",
      [this] { return admission_.bytes(); }, options_.queue_max_bytes);
  metrics_->AddMemory(
      "gemmd_staging", "Staging memory taken",
      [staging = &backend_->staging()] { return staging->used_bytes(); },
      backend_->staging().capacity_bytes());
  SampleDevices(*backend_, *metrics_);
  return absl::OkStatus();
}

void GemmServer::StartStore() {
  store_ = MatrixStore::Create(MatrixStoreOptionsOf(options_), *backend_, this);
  store_metrics_ = std::make_shared<StoreMetrics>(*store_);
  metrics_->AddSource(store_metrics_);
}

absl::Status GemmServer::StartRpc() {
  scheduler_ = BatchScheduler::Create(SchedulerOptionsOf(options_),
                                      backend_->devices(), this);
  auto rpc = RpcServer::Start(
      RpcOptionsOf(options_, ContainerMemoryLimit()),
      {.scheduler = scheduler_.get(),
       .backend = backend_.get(),
       .registry = &*registry_,
       .admission = &admission_,
       .metrics = metrics_.get(),
       .store = store_.get(),
       .request_log = request_log_.get(),
       .access = access_.get(),
       .port_lost = [this](const std::string& reason) { OnPortLost(reason); }});
  if (!rpc.ok()) return rpc.status();
  MutexLock lock(&mu_);
  rpc_ = *std::move(rpc);
  grpc_port_ = rpc_->port();
  return absl::OkStatus();
}

void GemmServer::BeginDrain(const absl::Status& fault) {
  MutexLock lock(&mu_);
  state_.Drain(fault);
  if (rpc_ != nullptr && !shut_down_) rpc_->SetServing(false);
  if (metrics_ != nullptr) metrics_->SetReady(false);
}

std::string GemmServer::RenderMetrics() {
  const Metrics* metrics;
  {
    MutexLock lock(&mu_);
    metrics = metrics_.get();
  }
  return metrics == nullptr ? "" : metrics->Render();
}

void GemmServer::OnDeviceFault(int device, const absl::Status& status) {
  metrics_->OnDeviceFault(device, status);
  Log(LogLevel::kError, "device failed",
      {{"device", absl::StrCat(device)},
       {"error", std::string(status.message())}});
  BeginDrain(status);
}

void GemmServer::OnPortLost(const std::string& reason) {
  const bool descriptors = absl::StrContains(reason, "open files");
  const absl::Status lost = absl::ResourceExhaustedError(absl::StrCat(
      "gRPC takes no more connections, since one could not be accepted: ",
      reason,
      descriptors ? " (more are had with ulimit -Hn, or LimitNOFILE)" : ""));
  Log(LogLevel::kError, "port lost", {{"reason", std::string(lost.message())}});
  BeginDrain(lost);
}

void GemmServer::Reload(absl::string_view log_level) {
  const absl::StatusOr<LogLevel> level = ParseLogLevel(log_level);
  if (level.ok()) SetLogLevel(*level);
  absl::Status status = level.status();
  if (access_ != nullptr) status.Update(access_->Reload());
  if (status.ok()) {
    Log(LogLevel::kInfo, "read anew", {{"log_level", std::string(log_level)}});
  } else {
    Log(LogLevel::kError, "what was read anew is not good; the old stays",
        {{"reason", std::string(status.message())}});
  }
}

absl::Status GemmServer::Shutdown() {
  BeginDrain(absl::OkStatus());
  {
    MutexLock lock(&mu_);
    if (std::exchange(shut_down_, true)) return state_.fault();
  }
  if (rpc_ != nullptr) {
    Log(LogLevel::kInfo, "draining",
        {{"delay", absl::FormatDuration(options_.drain_delay)},
         {"timeout", absl::FormatDuration(options_.drain_timeout)}});
    // Time for clients to go elsewhere; after a fault nothing is waited for.
    state_.WaitForFault(MonotonicClock::now() +
                        absl::ToChronoNanoseconds(options_.drain_delay));
    const MonotonicTime deadline =
        MonotonicClock::now() +
        absl::ToChronoNanoseconds(options_.drain_timeout);
    rpc_->RefuseNew(deadline);
    const bool queue_done = scheduler_->Drain(deadline);
    const bool calls_done = rpc_->Shutdown(deadline);
    if (!queue_done || !calls_done) {
      Log(LogLevel::kWarn,
          "requests were cut off: --drain-timeout was too short");
    }
    Log(LogLevel::kInfo, "stopped");
  }
  http_.reset();
  // What a stuck device may still use stays until it, or the process, ends.
  const bool stuck = (scheduler_ != nullptr && scheduler_->stuck()) ||
                     (store_ != nullptr && store_->stuck());
  if (!stuck) {
    rpc_.reset();
    scheduler_.reset();
    store_.reset();
    backend_.reset();
  }
  return state_.fault();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options) {
  return Start(options, CreateBackend);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, BackendFactory make_backend) {
  auto server = std::make_unique<GemmServer>(options);
  absl::Status status = server->Start(std::move(make_backend));
  if (!status.ok()) return status;
  return server;
}

}  // namespace gemmd
