// What the backend adds to the device's own time, printed for the record. The
// bounds are loose: they catch a lost wake-up or a copy that went pageable, not
// a busy machine.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "server/execute/cuda/handles.h"
#include "server/execute/cuda/segment_copy.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/gpu/backend/cuda_fixture.h"

namespace gemmd {
namespace {

double Microseconds(MonotonicDuration d) { return Seconds(d) * 1e6; }

double Percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * (values.size() - 1))];
}

class CudaLatencyTest : public CudaBackendFixture {
 protected:
  // Microseconds from Submit to the task's end, one at a time.
  std::vector<double> OneAtATime(const SgemmKernel& kernel, int64_t n,
                                 int count, MonotonicDuration pause) {
    const auto scheduler =
        BatchScheduler::Create({}, backend_->devices(), nullptr);
    std::vector<double> latencies;
    for (int i = 0; i < count; ++i) {
      TaskSpec spec;
      spec.shape = {n, n, n};
      spec.kernel = &kernel;
      spec.a.leading_dimension = spec.b.leading_dimension = n;
      spec.b.offset = n * n * 4;
      spec.input = *staging().Allocate(2 * n * n * 4);
      spec.output = *staging().Allocate(n * n * 4);
      Ending ending;
      auto task = std::make_shared<Task>(std::move(spec), ending.For());
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      const MonotonicTime start = MonotonicClock::now();
      EXPECT_TRUE(scheduler->Submit(std::move(task)).ok());
      while (!ending.ended()) {
      }
      latencies.push_back(Microseconds(MonotonicClock::now() - start));
      EXPECT_TRUE(ending.result.status.ok());
    }
    return latencies;
  }
};

TEST_F(CudaLatencyTest, ASmallProductTakesLittleMoreThanTheDevice) {
  ASSERT_TRUE(device().Warm().ok());
  for (const char* const name : {"naive", "cublas"}) {
    if (!registry_.Find(name).ok()) continue;
    const SgemmKernel& kernel = Kernel(name);
    const std::vector<double> first =
        OneAtATime(kernel, 64, 1, MonotonicDuration{0});
    const std::vector<double> busy =
        OneAtATime(kernel, 64, 3000, MonotonicDuration{0});
    const std::vector<double> paused =
        OneAtATime(kernel, 64, 200, std::chrono::milliseconds(2));
    std::printf(
        "%s 64^3, us from submit to end: first %.1f; one after the other p50 "
        "%.1f p99 %.1f; with 2 ms pauses p50 %.1f p99 %.1f\n",
        name, first[0], Percentile(busy, 0.5), Percentile(busy, 0.99),
        Percentile(paused, 0.5), Percentile(paused, 0.99));
    EXPECT_LT(Percentile(busy, 0.5), 200);
    EXPECT_LT(Percentile(paused, 0.5), 1000);
  }
}

TEST_F(CudaLatencyTest, ManySmallRequestsShareLaunchesAndCopies) {
  ASSERT_TRUE(device().Warm().ok());
  constexpr int kTotal = 20000;
  constexpr int kInFlight = 64;
  const SgemmKernel& kernel = Kernel("double_buffered");
  const auto scheduler =
      BatchScheduler::Create({}, backend_->devices(), nullptr);
  std::atomic<int> in_flight{0};
  const MonotonicTime start = MonotonicClock::now();
  for (int i = 0; i < kTotal; ++i) {
    while (in_flight.load() >= kInFlight) {
    }
    TaskSpec spec;
    spec.shape = {64, 64, 64};
    spec.kernel = &kernel;
    spec.a.leading_dimension = spec.b.leading_dimension = 64;
    spec.b.offset = 16384;
    spec.input = *staging().Allocate(32768);
    spec.output = *staging().Allocate(16384);
    ++in_flight;
    ASSERT_TRUE(scheduler
                    ->Submit(std::make_shared<Task>(std::move(spec),
                                                    [&](TaskResult result) {
                                                      EXPECT_TRUE(
                                                          result.status.ok());
                                                      --in_flight;
                                                    }))
                    .ok());
  }
  ASSERT_TRUE(scheduler->Drain(kNever));
  const double seconds = Seconds(MonotonicClock::now() - start);
  std::printf("64^3, %d in flight: %.0f products/s\n", kInFlight,
              kTotal / seconds);
  EXPECT_GT(kTotal / seconds, 20000);
}

TEST_F(CudaLatencyTest, PrintsWhatTheTwoWaysToCopyCost) {
  const CudaStream stream = *MakeStream();
  for (const size_t bytes :
       {size_t{32} << 10, size_t{128} << 10, size_t{512} << 10}) {
    for (const size_t count : {2, 4, 16, 64}) {
      const DeviceMemory memory = *MakeDeviceMemory(bytes * count);
      const StagingBuffer host = *staging().Allocate(bytes * count);
      std::vector<CopySegment> segments;
      for (size_t i = 0; i < count; ++i) {
        segments.push_back(
            {memory.get() + i * bytes, host.data() + i * bytes, bytes});
      }
      double best[2] = {1e9, 1e9};
      for (int round = 0; round < 200; ++round) {
        for (const bool by_kernel : {false, true}) {
          const MonotonicTime start = MonotonicClock::now();
          ASSERT_TRUE(
              (by_kernel ? CopySegmentsByKernel(segments, stream.get())
                         : CopySegmentsByEngine(
                               segments, cudaMemcpyHostToDevice, stream.get()))
                  .ok());
          ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
          best[by_kernel] = std::min(
              best[by_kernel], Microseconds(MonotonicClock::now() - start));
        }
      }
      std::printf(
          "%zu x %zu KiB to the device: engine %.1f us, kernel %.1f us"
          " (best of 200)\n",
          count, bytes >> 10, best[0], best[1]);
    }
  }
}

TEST_F(CudaLatencyTest, PrintsWhatPinnedMemoryCosts) {
  const size_t bytes = size_t{256} << 20;
  MonotonicTime start = MonotonicClock::now();
  { ASSERT_TRUE(MakePinnedMemory(0, bytes).ok()); }
  const double registered = Seconds(MonotonicClock::now() - start);
  start = MonotonicClock::now();
  void* memory = nullptr;
  ASSERT_EQ(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), cudaSuccess);
  cudaFreeHost(memory);
  std::printf(
      "256 MiB: touched and registered %.0f ms, cudaHostAlloc %.0f ms "
      "(with giving back)\n",
      registered * 1e3, Seconds(MonotonicClock::now() - start) * 1e3);
}

}  // namespace
}  // namespace gemmd
