// What the process counts and times, for /metrics.

#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/schedule/batch_scheduler.h"

namespace prometheus {
class Collectable;
}

namespace gemmd {

// The RPCs counted, in the order of Metrics' arrays.
enum class Method {
  kSgemm,
  kSgemmStream,
  kUploadMatrix,
  kDownloadMatrix,
  kListMatrices,
  kDeleteMatrix,
  kGetServerInfo,
  kHealthCheck,
  kHealthWatch,
};
inline constexpr int kMethodCount = 9;

// As in the label grpc_method: "gemmd.v1.GemmService/Sgemm".
absl::string_view MethodName(Method method);

enum class Stage { kDecode, kQueue, kH2d, kCompute, kD2h, kEncode };
inline constexpr int kStageCount = 6;

enum class ShedReason {
  kQueueFull,
  kMemory,
  kDeadline,
  kDraining,
  kTooLarge,
};
inline constexpr int kShedReasonCount = 5;

enum class DeviceError {
  kSticky,  // the device is not used after it
  kMemory,
  kLaunch,
};
inline constexpr int kDeviceErrorCount = 3;

struct MetricSeries;

// All series exist from the start, at 0; under 1,500 of them, none labelled by
// shape, client or error text. Names and meanings: README.md.
//
// Cost: a counter or gauge is one atomic addition, a histogram two; nothing
// locks. Recording a whole request takes under 1 us
// (tests/unit/server/observe, metrics_benchmark), and a scrape stops nobody.
//
// Thread-safe.
class Metrics : public BatchObserver {
 public:
  // With `enabled` false every call is a no-op (--metrics off). Only kernels
  // that can run here get series.
  Metrics(bool enabled, const KernelRegistry& kernels);
  ~Metrics() override;

  // A call's beginning and end: exactly one each, whatever becomes of it, so
  // that started - completed is the calls in the process (I1).
  void CallStarted(Method method);
  void CallCompleted(Method method, grpc::StatusCode code, double seconds);

  // Message bytes of a call, uncompressed.
  void MessageSizes(Method method, size_t received, size_t sent);

  // One stage of one product, as the client saw it.
  void StageDone(Stage stage, double seconds);

  // A product refused or dropped before it reached a device.
  void Shed(ShedReason reason);

  // A product accepted: 2mnk.
  void Problem(double flops);

  // Products between acceptance and answer.
  void SetInflight(int requests);

  // --queue-max-requests.
  void SetQueueCapacity(int requests);

  // Whether the server asks for requests.
  void SetReady(bool ready);

  // Announces a device, or that it is up or down. Before its first batch.
  void SetDevice(const DeviceInfo& device, bool up);

  // Two gauges, `name` + "_bytes" and `name` + "_capacity_bytes": how much of a
  // memory is taken and how much there is. `used` is called at each rendering,
  // from any thread.
  void AddMemory(const std::string& name, const std::string& help,
                 std::function<size_t()> used, size_t capacity);

  // Renders what `source` collects, too (device samples).
  void AddSource(std::shared_ptr<prometheus::Collectable> source);

  void OnBatch(const Batch& batch, const BatchReport& report) override;
  void OnStreams(int device, int change) override;
  void OnQueueDepth(int requests, size_t bytes) override;
  void OnDeviceFault(int device, const absl::Status& status) override;

  // The Prometheus text exposition of all of it; empty when not enabled.
  std::string Render() const;

  bool enabled() const { return series_ != nullptr; }

 private:
  void CountError(DeviceError error);

  const std::unique_ptr<MetricSeries> series_;  // null: not enabled
};

}  // namespace gemmd
