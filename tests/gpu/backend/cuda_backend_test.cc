#include <cuda_runtime.h>
#include <time.h>

#include <chrono>
#include <thread>

#include "proto/error_details.h"
#include "server/execute/cuda/cuda_device.h"
#include "server/execute/slab_staging_pool.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/gpu/backend/cuda_fixture.h"
#include "tests/unit/server/execute/memory_reuse.h"

namespace gemmd {
namespace {

using std::chrono::milliseconds;

class CudaBackendTest : public CudaBackendFixture {};

TEST_F(CudaBackendTest, DescribesItsDevices) {
  EXPECT_EQ(backend_->name(), "cuda");
  EXPECT_EQ(backend_->kernel_space(), MemorySpace::kDevice);
  ASSERT_FALSE(backend_->devices().empty());
  EXPECT_FALSE(device().info().name.empty());
  EXPECT_FALSE(device().info().compute_capability.empty());
  EXPECT_GT(device().info().memory_bytes, size_t{1} << 30);
  EXPECT_GT(device().info().streams, 1);
}

TEST_F(CudaBackendTest, RefusesADeviceThatIsNotThere) {
  EXPECT_EQ(CreateCudaBackend({.devices = {4711}}, registry_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CudaBackendTest, WarmsUpWithinTenSeconds) {
  const MonotonicTime start = MonotonicClock::now();
  ASSERT_TRUE(device().Warm().ok());
  EXPECT_LT(MonotonicClock::now() - start, std::chrono::seconds(10));
}

TEST_F(CudaBackendTest, ComputesEachTaskOfABatchWithEveryKernel) {
  ASSERT_FALSE(Kernels().empty());
  for (const SgemmKernel* const kernel : Kernels()) {
    if (kernel->info().precision != Precision::kFp32) continue;
    for (const size_t size : {1, 3, 70}) {
      for (const float beta : {0.0f, -0.5f}) {
        const bool transpose = size == 3;
        Batch batch;
        batch.kernel = kernel;
        batch.fused = kernel->info().fusion == Fusion::kAnyShapes;
        std::vector<BackendProblem> problems;
        std::vector<Ending> endings(size);
        for (Ending& ending : endings) {
          problems.emplace_back(staging(), *kernel,
                                GemmShape{37, 21, 55, transpose, !transpose},
                                1.5f, beta, random_);
          batch.tasks.push_back(problems.back().MakeTask(ending.For()));
        }
        const BatchReport report = Run(std::move(batch));
        ASSERT_TRUE(report.status.ok()) << report.status;
        ASSERT_TRUE(report.launch_status.ok()) << report.launch_status;
        EXPECT_EQ(report.tasks, static_cast<int>(size));
        EXPECT_GT(report.h2d_bytes, size * 37 * 55 * 4);
        EXPECT_EQ(report.d2h_bytes, size * 37 * 21 * 4);
        EXPECT_GT(report.seconds.compute, 0);
        for (size_t i = 0; i < size; ++i) {
          ASSERT_EQ(endings[i].times, 1);
          ASSERT_TRUE(endings[i].result.status.ok());
          EXPECT_LE(problems[i].Error(endings[i].result.output), 1)
              << kernel->info().name << ", task " << i << " of " << size;
          endings[i].result.output.Reset();
        }
        EXPECT_EQ(staging().used_bytes(), 0u);
      }
    }
  }
}

TEST_F(CudaBackendTest, ComputesProductsWithNothingInThem) {
  for (const GemmShape shape : {GemmShape{0, 5, 7}, GemmShape{5, 0, 7},
                                GemmShape{5, 7, 0}, GemmShape{0, 0, 0}}) {
    for (const SgemmKernel* const kernel : Kernels()) {
      BackendProblem problem(staging(), *kernel, shape, 1, 0.5, random_);
      Ending ending;
      Batch batch;
      batch.kernel = kernel;
      batch.tasks.push_back(problem.MakeTask(ending.For()));
      ASSERT_TRUE(Run(std::move(batch)).status.ok());
      ASSERT_TRUE(ending.result.status.ok()) << ending.result.status;
      EXPECT_LE(problem.Error(ending.result.output), 1) << kernel->info().name;
    }
  }
}

TEST_F(CudaBackendTest, OnlyAFusedBatchIsOneLaunch) {
  for (const bool fused : {false, true}) {
    ScriptedDeviceKernel kernel(fused);
    Batch batch;
    batch.kernel = &kernel;
    batch.fused = fused;
    std::vector<Ending> endings(3);
    for (Ending& e : endings) batch.tasks.push_back(MakeTask(kernel, e));
    Run(std::move(batch));
    if (fused) {
      EXPECT_THAT(kernel.launches, ::testing::ElementsAre(3));
    } else {
      EXPECT_THAT(kernel.launches, ::testing::ElementsAre(1, 1, 1));
    }
  }
}

TEST_F(CudaBackendTest, LeavesOutWhatHasEndedAndWhatIsLate) {
  ScriptedDeviceKernel kernel(/*fused=*/true);
  Batch batch;
  batch.kernel = &kernel;
  std::vector<Ending> endings(3);
  batch.tasks.push_back(MakeTask(kernel, endings[0]));
  batch.tasks[0]->Abort(absl::CancelledError(""));
  batch.tasks.push_back(
      MakeTask(kernel, endings[1], {8, 8, 8}, MonotonicClock::now()));
  batch.tasks.push_back(MakeTask(kernel, endings[2]));
  const BatchReport report = Run(std::move(batch));
  EXPECT_EQ(report.tasks, 1);
  EXPECT_THAT(kernel.launches, ::testing::ElementsAre(1));
  EXPECT_EQ(endings[0].result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(endings[1].result.status.code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(endings[2].result.status.ok());
  for (Ending& ending : endings) EXPECT_EQ(ending.times, 1);
}

TEST_F(CudaBackendTest, AFailedLaunchIsItsTasksTroubleAlone) {
  ScriptedDeviceKernel kernel(/*fused=*/false);
  kernel.on_launch = [&](std::span<const SgemmArgs>, const LaunchContext&) {
    return kernel.launches.size() == 2
               ? absl::InternalError("cudaSecret: bad value")
               : absl::OkStatus();
  };
  Batch batch;
  batch.kernel = &kernel;
  std::vector<Ending> endings(3);
  for (Ending& ending : endings) {
    batch.tasks.push_back(MakeTask(kernel, ending));
  }
  const BatchReport report = Run(std::move(batch));
  EXPECT_TRUE(report.status.ok());
  EXPECT_EQ(report.launch_status.message(), "cudaSecret: bad value");
  EXPECT_TRUE(endings[0].result.status.ok());
  EXPECT_EQ(endings[1].result.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(endings[1].result.status.message()),
              ::testing::Not(::testing::HasSubstr("cudaSecret")));
  EXPECT_TRUE(endings[2].result.status.ok());
}

TEST_F(CudaBackendTest, RunsBatchesOfSeveralLeasesAtTheSameTime) {
  const SgemmKernel& kernel = Kernel("naive");
  Ending slow_ending;
  Ending quick_ending;
  Batch slow;
  slow.kernel = &kernel;
  {
    TaskSpec spec;
    spec.shape = {4096, 4096, 4096};
    spec.kernel = &kernel;
    spec.a.leading_dimension = spec.b.leading_dimension = 4096;
    spec.input = *staging().Allocate(4096 * 4096 * 4);  // A and B are one
    spec.output = *staging().Allocate(4096 * 4096 * 4);
    slow.tasks.push_back(
        std::make_shared<Task>(std::move(spec), slow_ending.For()));
  }
  Batch quick;
  quick.kernel = &kernel;
  quick.tasks.push_back(MakeTask(kernel, quick_ending));
  std::latch both(2);
  bool slow_was_first = false;
  device().Execute(std::move(slow), [&](const BatchReport&) {
    slow_was_first = !quick_ending.ended();
    both.count_down();
  });
  device().Execute(std::move(quick),
                   [&](const BatchReport&) { both.count_down(); });
  both.wait();
  EXPECT_FALSE(slow_was_first);
  EXPECT_TRUE(slow_ending.result.status.ok());
}

// I3: no memory is asked for, of the device or pinned, once it is warm.
TEST_F(CudaBackendTest, AsksForNoMemoryOnceItIsWarm) {
  ASSERT_TRUE(device().Warm().ok());
  auto& pool = dynamic_cast<SlabStagingPool&>(staging());
  const int slabs = pool.slab_allocations();
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  {
    const auto scheduler =
        BatchScheduler::Create({}, backend_->devices(), nullptr);
    std::vector<Ending> endings(3000);
    const std::vector<const SgemmKernel*> kernels = Kernels();
    for (size_t i = 0; i < endings.size(); ++i) {
      const int64_t n = 1 + static_cast<int64_t>(random_() % 64);
      ASSERT_TRUE(scheduler
                      ->Submit(MakeTask(*kernels[i % kernels.size()],
                                        endings[i], {n, n, n}))
                      .ok());
      if (i >= 500) {
        while (!endings[i - 500].ended()) std::this_thread::yield();
        endings[i - 500].result.output.Reset();
      }
    }
    EXPECT_TRUE(scheduler->Drain(kNever));
    for (Ending& ending : endings) {
      ASSERT_EQ(ending.times, 1);
      ASSERT_TRUE(ending.result.status.ok()) << ending.result.status;
    }
  }
  size_t free_after = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_EQ(free_before, free_after);
  EXPECT_EQ(pool.slab_allocations(), slabs);
  EXPECT_EQ(staging().used_bytes(), 0u);
}

TEST_F(CudaBackendTest, BatchesWaitForEachOthersMemoryInsteadOfFailing) {
  Make({.staging_bytes = 1 << 20, .request_bytes = 1 << 20});
  const SgemmKernel& kernel = Kernel("naive");
  const auto& memory = dynamic_cast<CudaDevice&>(device()).memory();
  // Each needs more than half of what the device has.
  std::vector<Ending> endings(3);
  std::latch done(3);
  FakePool anywhere;
  for (Ending& ending : endings) {
    BackendProblem problem(anywhere, kernel, {64, 64, 1200}, 1, 0, random_);
    ASSERT_GT(problem.spec().bytes(), memory.capacity() / 2);
    Batch batch;
    batch.kernel = &kernel;
    batch.tasks.push_back(problem.MakeTask(ending.For()));
    device().Execute(std::move(batch),
                     [&](const BatchReport&) { done.count_down(); });
  }
  done.wait();
  for (Ending& ending : endings) {
    EXPECT_TRUE(ending.result.status.ok()) << ending.result.status;
    ending.result.output.Reset();
  }
  EXPECT_EQ(memory.used(), 0u);
}

TEST_F(CudaBackendTest, WhatCouldNeverFitIsRefusedAloneAndNamesTheFlag) {
  Make({.staging_bytes = 1 << 20, .request_bytes = 1 << 20});
  const SgemmKernel& kernel = Kernel("naive");
  FakePool anywhere;
  Ending large_ending;
  Ending small_ending;
  Batch batch;
  batch.kernel = &kernel;
  BackendProblem large(anywhere, kernel, {64, 64, 4096}, 1, 0, random_);
  BackendProblem small(anywhere, kernel, {64, 64, 64}, 1, 0, random_);
  batch.tasks.push_back(large.MakeTask(large_ending.For()));
  batch.tasks.push_back(small.MakeTask(small_ending.For()));
  EXPECT_EQ(Run(std::move(batch)).tasks, 1);
  EXPECT_EQ(large_ending.result.status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(large_ending.result.status.message()),
              ::testing::HasSubstr("--pinned-pool-bytes"));
  EXPECT_TRUE(small_ending.result.status.ok());
  EXPECT_LE(small.Error(small_ending.result.output), 1);
  small_ending.result.output.Reset();
}

TEST_F(CudaBackendTest, AWorkspaceThatCouldNeverFitIsRefused) {
  Make({.staging_bytes = 1 << 20, .request_bytes = 1 << 20});
  const auto& memory = dynamic_cast<CudaDevice&>(device()).memory();
  for (const bool fused : {false, true}) {
    ScriptedDeviceKernel kernel(fused);
    kernel.workspace_bytes = memory.capacity() + 1;
    std::vector<Ending> endings(2);
    Batch batch;
    batch.kernel = &kernel;
    batch.fused = fused;
    for (Ending& e : endings) batch.tasks.push_back(MakeTask(kernel, e));
    const BatchReport report = Run(std::move(batch));
    EXPECT_TRUE(report.status.ok()) << report.status;
    EXPECT_EQ(report.tasks, 0);
    EXPECT_THAT(kernel.launches, ::testing::IsEmpty());
    for (const Ending& ending : endings) {
      EXPECT_EQ(ending.times, 1);
      EXPECT_EQ(ending.result.status.code(), absl::StatusCode::kOutOfRange);
    }
  }
}

TEST_F(CudaBackendTest, ABatchTooLargeTogetherShedsItsYoungestTasks) {
  Make({.staging_bytes = 1 << 20, .request_bytes = 1 << 20});
  const SgemmKernel& kernel = Kernel("naive");
  FakePool anywhere;
  std::vector<Ending> endings(3);
  Batch batch;
  batch.kernel = &kernel;
  for (Ending& ending : endings) {
    BackendProblem problem(anywhere, kernel, {64, 64, 900}, 1, 0, random_);
    batch.tasks.push_back(problem.MakeTask(ending.For()));
  }
  EXPECT_EQ(Run(std::move(batch)).tasks, 2);
  EXPECT_TRUE(endings[0].result.status.ok());
  EXPECT_TRUE(endings[1].result.status.ok());
  EXPECT_EQ(endings[2].result.status.code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryDelay(endings[2].result.status).has_value());
  for (Ending& ending : endings) ending.result.output.Reset();
}

// I7.
TEST_F(CudaBackendTest, SendsNothingThatAnotherClientLeftInMemory) {
  const auto run = [this](Batch batch) { return Run(std::move(batch)); };
  for (const SgemmKernel* const kernel : Kernels()) {
    if (kernel->info().precision != Precision::kFp32) continue;
    ExpectNothingOfOthersIsSent(staging(), Kernel("naive"), *kernel, random_,
                                run);
  }
  ScriptedDeviceKernel broken(/*fused=*/true);
  broken.on_launch = [](std::span<const SgemmArgs>, const LaunchContext&) {
    return absl::InternalError("broken");
  };
  ExpectNothingOfOthersIsSent(staging(), Kernel("naive"), broken, random_, run);
}

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + t.tv_nsec * 1e-9;
}

TEST_F(CudaBackendTest, UsesNoProcessorWhileItIsIdle) {
  Ending ending;
  Batch batch;
  batch.kernel = &Kernel("naive");
  batch.tasks.push_back(MakeTask(*batch.kernel, ending));
  Run(std::move(batch));
  std::this_thread::sleep_for(milliseconds(50));
  const double before = CpuSeconds();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LT(CpuSeconds() - before, 0.02 * 0.5);
}

}  // namespace
}  // namespace gemmd
