#include "server/execute/cpu/cpu_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "proto/error_details.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/unit/server/execute/cpu_fixture.h"
#include "tests/unit/server/execute/memory_reuse.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

// A host kernel that computes nothing, counts its launches, and can be told to
// fail or to wait.
class ScriptedKernel : public SgemmKernel {
 public:
  ScriptedKernel()
      : SgemmKernel({.name = "scripted",
                     .description = "scripted",
                     .batch_invariant = true,
                     .fusion = Fusion::kAnyShapes}) {}
  absl::Status Supports(const SgemmArgs&) const override {
    return absl::OkStatus();
  }
  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext&) const override {
    launches.push_back(problems.size());
    if (on_launch) on_launch();
    return status;
  }
  mutable std::vector<size_t> launches;
  std::function<void()> on_launch;
  absl::Status status;
};

class CpuBackendTest : public CpuFixture {
 protected:
  std::shared_ptr<Task> Make(const SgemmKernel& kernel, Ending& ending,
                             MonotonicTime deadline = kNever) {
    BackendProblem problem(backend_->staging(), kernel, {2, 2, 2}, 1, 0,
                           random_);
    problem.spec().deadline = deadline;
    return problem.MakeTask(ending.For());
  }
};

TEST_F(CpuBackendTest, IsOneDeviceWithOneStream) {
  EXPECT_EQ(backend_->name(), "cpu");
  EXPECT_EQ(backend_->kernel_space(), MemorySpace::kHost);
  ASSERT_EQ(backend_->devices().size(), 1u);
  EXPECT_EQ(device().info().streams, 1);
  EXPECT_FALSE(device().info().name.empty());
  EXPECT_GT(device().info().memory_bytes, 0u);
  EXPECT_TRUE(device().Warm().ok());
}

TEST_F(CpuBackendTest, ComputesEachTaskOfABatchWithEveryKernel) {
  for (const char* const name : {"openblas", "reference"}) {
    const absl::StatusOr<const SgemmKernel*> kernel = registry_.Find(name);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    for (const bool transpose : {false, true}) {
      for (const float beta : {0.0f, -0.5f}) {
        Batch batch;
        batch.kernel = *kernel;
        std::vector<BackendProblem> problems;
        std::vector<Ending> endings(3);
        for (Ending& ending : endings) {
          problems.emplace_back(backend_->staging(), **kernel,
                                GemmShape{37, 21, 55, transpose, !transpose},
                                1.5f, beta, random_);
          batch.tasks.push_back(problems.back().MakeTask(ending.For()));
        }
        const BatchReport report = Run(std::move(batch));
        EXPECT_TRUE(report.status.ok());
        EXPECT_EQ(report.tasks, 3);
        EXPECT_EQ(report.flops, 3 * 2.0 * 37 * 21 * 55);
        for (size_t i = 0; i < endings.size(); ++i) {
          ASSERT_EQ(endings[i].times, 1);
          ASSERT_TRUE(endings[i].result.status.ok());
          EXPECT_LE(problems[i].Error(endings[i].result.output), 1) << name;
          EXPECT_GT(endings[i].result.seconds.compute, 0);
          EXPECT_EQ(endings[i].result.batch_size, 3);
          endings[i].result.output.Reset();
        }
        EXPECT_EQ(backend_->staging().used_bytes(), 0u);
      }
    }
  }
}

TEST_F(CpuBackendTest, RunsTheTasksOfABatchInTurn) {
  ScriptedKernel kernel;
  Batch batch;
  batch.kernel = &kernel;
  std::vector<Ending> endings(3);
  for (Ending& ending : endings) batch.tasks.push_back(Make(kernel, ending));
  kernel.on_launch = [&] {
    const size_t turn = kernel.launches.size() - 1;
    for (size_t i = 0; i < endings.size(); ++i) {
      EXPECT_EQ(endings[i].ended(), i < turn) << i << " in turn " << turn;
    }
  };
  Run(std::move(batch));
  EXPECT_THAT(kernel.launches, ::testing::ElementsAre(1, 1, 1));
}

TEST_F(CpuBackendTest, LeavesOutWhatHasEndedAndWhatIsLate) {
  ScriptedKernel kernel;
  Batch batch;
  batch.kernel = &kernel;
  std::vector<Ending> endings(3);
  batch.tasks.push_back(Make(kernel, endings[0]));
  batch.tasks[0]->Abort(absl::CancelledError(""));
  batch.tasks.push_back(Make(kernel, endings[1], MonotonicClock::now()));
  batch.tasks.push_back(Make(kernel, endings[2]));
  const BatchReport report = Run(std::move(batch));
  EXPECT_EQ(report.tasks, 1);
  EXPECT_THAT(kernel.launches, ::testing::ElementsAre(1));
  EXPECT_EQ(endings[0].result.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(endings[1].result.status.code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(endings[2].result.status.ok());
  for (Ending& ending : endings) EXPECT_EQ(ending.times, 1);
}

TEST_F(CpuBackendTest, ABatchWithNothingToRunIsReportedAllTheSame) {
  ScriptedKernel kernel;
  Batch batch;
  batch.kernel = &kernel;
  Ending ending;
  batch.tasks.push_back(Make(kernel, ending));
  batch.tasks[0]->Abort(absl::CancelledError(""));
  EXPECT_EQ(Run(std::move(batch)).tasks, 0);
  EXPECT_THAT(kernel.launches, ::testing::IsEmpty());
}

TEST_F(CpuBackendTest, ACancelReachesATaskUntilItsOwnTurnComes) {
  const absl::StatusOr<const SgemmKernel*> kernel = registry_.Find("openblas");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  Batch batch;
  batch.kernel = *kernel;
  Ending second;
  std::shared_ptr<Task> second_task = Make(**kernel, second);
  bool cancelled = false;
  BackendProblem first(backend_->staging(), **kernel, {2, 2, 2}, 1, 0, random_);
  batch.tasks.push_back(first.MakeTask([&](const TaskResult& result) {
    EXPECT_TRUE(result.status.ok());
    cancelled = second_task->Abort(absl::CancelledError(""));
  }));
  batch.tasks.push_back(second_task);
  EXPECT_EQ(Run(std::move(batch)).tasks, 1);
  EXPECT_TRUE(cancelled) << "it ran before the first had ended";
  EXPECT_EQ(second.result.status.code(), absl::StatusCode::kCancelled);
}

TEST_F(CpuBackendTest, TellsTheClientNoInternalsOfAFailedLaunch) {
  ScriptedKernel kernel;
  kernel.status = absl::InternalError("secret_call failed at 0x1234");
  Batch batch;
  batch.kernel = &kernel;
  Ending ending;
  batch.tasks.push_back(Make(kernel, ending));
  const BatchReport report = Run(std::move(batch));
  EXPECT_TRUE(report.status.ok()) << "the processor is sound";
  EXPECT_EQ(report.launch_status, kernel.status);
  EXPECT_EQ(ending.result.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(ending.result.status.message()),
              ::testing::Not(::testing::HasSubstr("secret_call")));
}

// I7.
TEST_F(CpuBackendTest, SendsNothingThatAnotherClientLeftInMemory) {
  const absl::StatusOr<const SgemmKernel*> first = registry_.Find("reference");
  ASSERT_TRUE(first.ok());
  const auto run = [this](Batch batch) { return Run(std::move(batch)); };
  for (const KernelEntry& entry : registry_.entries()) {
    if (entry.kernel == nullptr || entry.info.space != MemorySpace::kHost) {
      continue;
    }
    ExpectNothingOfOthersIsSent(backend_->staging(), **first, *entry.kernel,
                                random_, run);
  }
  ScriptedKernel broken;
  broken.status = absl::InternalError("broken");
  ExpectNothingOfOthersIsSent(backend_->staging(), **first, broken, random_,
                              run);
}

TEST_F(CpuBackendTest, ExecuteReturnsBeforeTheWorkIsDone) {
  ScriptedKernel kernel;
  std::latch may_run(1);
  kernel.on_launch = [&] { may_run.wait(); };
  Batch batch;
  batch.kernel = &kernel;
  Ending ending;
  batch.tasks.push_back(Make(kernel, ending));
  std::latch done(1);
  std::thread::id ended_on;
  device().Execute(std::move(batch), [&](const BatchReport&) {
    ended_on = std::this_thread::get_id();
    done.count_down();
  });
  EXPECT_EQ(ending.times, 0);
  may_run.count_down();
  done.wait();
  EXPECT_NE(ended_on, std::this_thread::get_id());
}

// The whole way below the wire, as the server uses it.
TEST_F(CpuBackendTest, ServesAScheduler) {
  const absl::StatusOr<const SgemmKernel*> kernel = registry_.Find("openblas");
  ASSERT_TRUE(kernel.ok());
  std::vector<BackendProblem> problems;
  std::vector<Ending> endings(200);
  {
    const std::unique_ptr<BatchScheduler> scheduler =
        BatchScheduler::Create({}, backend_->devices(), nullptr);
    for (size_t i = 0; i < endings.size(); ++i) {
      const int64_t n = 1 + static_cast<int64_t>(i % 3) * 20;
      problems.emplace_back(backend_->staging(), **kernel, GemmShape{n, n, n},
                            1.0f, 0.0f, random_);
      ASSERT_TRUE(
          scheduler->Submit(problems.back().MakeTask(endings[i].For())).ok());
    }
    EXPECT_TRUE(scheduler->Drain(kNever));
  }
  for (size_t i = 0; i < endings.size(); ++i) {
    ASSERT_EQ(endings[i].times, 1);
    ASSERT_TRUE(endings[i].result.status.ok());
    EXPECT_LE(problems[i].Error(endings[i].result.output), 1);
  }
}

TEST(CreateBackendTest, ExplainsWhatItCannotMake) {
  const KernelRegistry registry = KernelRegistry::Create();
  EXPECT_EQ(CreateBackend({.backend = "tpu"}, registry).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateBackend({.backend = "cpu", .devices = {1}}, registry)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<std::unique_ptr<Backend>> cpu =
      CreateBackend({.backend = "cpu", .streams_per_device = 3}, registry);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ((*cpu)->devices()[0]->info().streams, 3);
  EXPECT_TRUE(CreateBackend({.backend = "auto"}, registry).ok());
  const absl::StatusOr<std::unique_ptr<Backend>> cuda =
      CreateBackend({.backend = "cuda"}, registry);
  if (!cuda.ok()) {  // no device, or a build without CUDA
    EXPECT_EQ(cuda.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(cuda.status().message()),
                ::testing::HasSubstr("CUDA"));
  }
}

}  // namespace
}  // namespace gemmd
