// What the process counts and times, for /metrics.

#pragma once

#include <array>
#include <memory>
#include <string>

#include <grpcpp/support/status_code_enum.h>

#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/schedule/batch_scheduler.h"

namespace prometheus {
class Registry;
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

// All series exist from the start, at 0. Recording takes no lock shared with a
// scrape where the library allows it, and never blocks.
//
// Thread-safe.
class Metrics : public BatchObserver {
 public:
  // With `enabled` false every call is a no-op (--metrics off).
  Metrics(bool enabled, const KernelRegistry& kernels);
  ~Metrics() override;

  void CallStarted(Method method);
  void CallCompleted(Method method, grpc::StatusCode code, double seconds);
  void StageDone(Stage stage, double seconds);
  void Shed(ShedReason reason);
  void Problem(double flops);
  void SetInflight(int requests);
  void SetDevice(const DeviceInfo& device, bool up);

  void OnBatch(const Batch& batch, const BatchReport& report) override;
  void OnQueueDepth(int requests, size_t bytes) override;
  void OnDeviceFault(int device, const absl::Status& status) override;

  // The Prometheus text exposition of all of it.
  std::string Render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd
