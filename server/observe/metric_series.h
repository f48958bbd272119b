// The series behind Metrics: made once, then only moved.

#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/registry.h"
#include "server/mutex.h"
#include "server/observe/metrics.h"
#include "server/observe/striped_histogram.h"

namespace gemmd {

inline constexpr int kStatusCodeCount = 17;  // OK to UNAUTHENTICATED
inline constexpr int kFlushReasonCount = 4;

// What a kernel's launches are counted in.
struct KernelSeries {
  prometheus::Counter* flops;
  prometheus::Counter* busy_seconds;
  prometheus::Counter* launches;
  StripedHistogram* batch_size;
};

// Arrays are in the order of the enums of metrics.h. Everything is constant
// after construction, and what the pointers lead to synchronises itself.
struct MetricSeries {
  explicit MetricSeries(const KernelRegistry& kernels);

  // First, since the rest points into it.
  prometheus::Registry registry;

  std::array<prometheus::Counter*, kMethodCount> started;
  std::array<std::array<prometheus::Counter*, kStatusCodeCount>, kMethodCount>
      completed;
  std::array<StripedHistogram*, kMethodCount> durations;
  std::array<StripedHistogram*, kMethodCount> received_bytes;
  std::array<StripedHistogram*, kMethodCount> sent_bytes;
  std::array<StripedHistogram*, kStageCount> stages;
  std::array<prometheus::Counter*, kShedReasonCount> sheds;
  std::array<prometheus::Counter*, kFlushReasonCount> flushes;
  std::array<prometheus::Counter*, 2> transfers;  // h2d, d2h
  std::unordered_map<const SgemmKernel*, KernelSeries> kernels;
  StripedHistogram* problem_flops;
  prometheus::Gauge* ready;
  prometheus::Gauge* queue_depth;
  prometheus::Gauge* queue_bytes;
  prometheus::Gauge* queue_capacity;
  prometheus::Gauge* inflight;

  // By the label `device`.
  prometheus::Family<prometheus::Gauge>* device_info;
  prometheus::Family<prometheus::Gauge>* device_up;
  prometheus::Family<prometheus::Gauge>* device_peak_flops;
  prometheus::Family<prometheus::Gauge>* streams;
  prometheus::Family<prometheus::Gauge>* streams_busy_family;
  std::vector<prometheus::Gauge*> streams_busy;  // set by SetDevice
  std::array<prometheus::Counter*, kDeviceErrorCount> device_errors;

  mutable Mutex mu;
  std::vector<std::shared_ptr<prometheus::Collectable>> sources
      ABSL_GUARDED_BY(mu);

 private:
  prometheus::Family<prometheus::Counter>& CounterFamily(const char* name,
                                                         const char* help);
  prometheus::Family<prometheus::Gauge>& GaugeFamily(const char* name,
                                                     const char* help);
  HistogramFamily& AddHistograms(const char* name, const char* help);

  void AddCalls();
  void AddKernels(const KernelRegistry& kernels);
  void AddProducts();
  void AddQueue();
  void AddDevices();
  void AddProcess();
};

}  // namespace gemmd
