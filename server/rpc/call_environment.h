// What all calls of a server share.

#pragma once

#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "gemmd/v1/gemm_service.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/execute/job_threads.h"
#include "server/rpc/health_registry.h"
#include "server/rpc/live_count.h"
#include "server/rpc/open_streams.h"
#include "server/rpc/service.h"
#include "server/store/shared_regions.h"

namespace gemmd {

// The generated service with Sgemm, its first method, as a ReceivedCall wants
// it: its request is read by the call, as that of a stream.
class ReceivedSgemm : public v1::GemmService::Service {
 public:
  ReceivedSgemm() {
    MarkMethodStreamed(kIndex, nullptr);
    MarkMethodRaw(kIndex);
  }

  void RequestSgemm(
      grpc::ServerContext* context,
      grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer>* stream,
      grpc::ServerCompletionQueue* queue, void* tag) {
    RequestAsyncClientStreaming(kIndex, context, stream, queue, queue, tag);
  }

 private:
  static constexpr int kIndex = 0;
};

// Every method asynchronous and raw: a call receives and answers byte buffers.
using GemmAsyncService = v1::GemmService::WithRawMethod_SgemmStream<
    v1::GemmService::WithRawMethod_UploadMatrix<
        v1::GemmService::WithRawMethod_DownloadMatrix<
            v1::GemmService::WithRawMethod_ListMatrices<
                v1::GemmService::WithRawMethod_DeleteMatrix<
                    v1::GemmService::WithRawMethod_GetServerInfo<
                        ReceivedSgemm>>>>>>;
using HealthAsyncService = grpc::health::v1::Health::WithRawMethod_Check<
    grpc::health::v1::Health::WithRawMethod_Watch<
        grpc::health::v1::Health::Service>>;

// How many products are between acceptance and answer.
//
// Thread-safe. The lock keeps the gauge in the order of the changes, so that it
// ends at 0.
class InflightProducts {
 public:
  explicit InflightProducts(Metrics* metrics) : metrics_(metrics) {}

  void Add(int change) {
    MutexLock lock(&mu_);
    count_ += change;
    metrics_->SetInflight(count_);
  }

 private:
  Metrics* const metrics_;
  Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0;
};

struct CallEnvironment {
  CallEnvironment(const RpcOptions& options,
                  const RpcDependencies& dependencies, int workers)
      : options(options),
        dependencies(dependencies),
        inflight(dependencies.metrics),
        workers(workers, "gemmd-worker-") {}

  // Constant after construction.
  const RpcOptions options;
  const RpcDependencies dependencies;
  // Set before the start. A GetServerInfoResponse, and that for calls that may
  // share memory; the regions, null where there are none.
  grpc::Slice server_info;
  grpc::Slice local_server_info;
  std::unique_ptr<SharedRegions> regions;

  // Synchronise themselves.
  GemmAsyncService gemm_service;
  HealthAsyncService health_service;
  HealthRegistry health;
  LiveCount calls;     // offered, running or being answered
  LiveCount awaited;   // of those, the ones that began before the drain
  LiveCount decoding;  // products that have not reached the scheduler yet:
                       // being decoded, or waiting for their turn or a copy
  LiveCount answers;   // staging buffers that gRPC still sends from
  InflightProducts inflight;
  OpenStreams streams;                   // told when the server drains
  std::atomic<uint64_t> next_device{0};  // spreads what has no place yet
  std::atomic<bool> refusing{false};     // set once, read by each new call
  JobThreads workers;  // last, so that its jobs end before the rest goes
};

}  // namespace gemmd
