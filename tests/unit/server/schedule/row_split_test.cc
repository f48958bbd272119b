#include "server/schedule/row_split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "proto/error_details.h"
#include "tests/support/faulty_backend.h"
#include "tests/unit/server/execute/backend_problem.h"
#include "tests/unit/server/execute/operand_mixtures.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {
namespace {

using testing::Fault;
using testing::FaultyBackend;

TEST(ShareRowsTest, EveryRowIsMadeOnceAndThePartsAreAlmostEqual) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t m = 1 + random() % 10000;
    const int devices = 2 + static_cast<int>(random() % 7);
    const auto parts = ShareRows({m, 3, 5}, devices, /*min_flops=*/1);
    if (m <= kRowStep) {
      EXPECT_TRUE(parts.empty()) << m;
      continue;
    }
    int64_t next = 0;
    int64_t least = m;
    int64_t most = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      EXPECT_EQ(parts[p].device, static_cast<int>(p));
      EXPECT_EQ(parts[p].first, next);
      EXPECT_EQ(parts[p].first % kRowStep, 0);
      next += parts[p].rows;
      least = std::min(least, parts[p].rows);
      most = std::max(most, parts[p].rows);
    }
    EXPECT_EQ(next, m);
    EXPECT_GT(least, 0);
    EXPECT_LT(most - least, 2 * kRowStep);
  }
}

TEST(ShareRowsTest, OnlyALargeProductIsSharedAndOnlyAmongSeveral) {
  const GemmShape shape = {1024, 100, 10};
  EXPECT_EQ(ShareRows(shape, 2, shape.flops()).size(), 2u);
  EXPECT_TRUE(ShareRows(shape, 2, shape.flops() + 1).empty());
  EXPECT_TRUE(ShareRows(shape, 1, 1).empty());
  EXPECT_TRUE(ShareRows(shape, 2, 0).empty());
}

class FaultCounter : public BatchObserver {
 public:
  void OnBatch(const Batch&, const BatchReport&) override {}
  void OnQueueDepth(int, size_t) override {}
  void OnStreams(int, int) override {}
  void OnDeviceFault(int, const absl::Status&) override { ++faults; }
  std::atomic<int> faults{0};
};

class RowSplitTest : public ::testing::Test {
 protected:
  static constexpr int kDevices = 3;

  RowSplitTest() {
    backend_ = *FaultyBackend::Create(
        {.streams_per_device = 1, .staging_bytes = size_t{64} << 20}, registry_,
        kDevices);
    Start({});
  }

  void Start(const BatchSchedulerOptions& options) {
    scheduler_.reset();
    scheduler_ =
        BatchScheduler::Create(options, backend_->devices(), &observer_);
  }

  ~RowSplitTest() override {
    for (int i = 0; i < kDevices; ++i) backend_->device(i).Release();
  }

  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  // Brings a resident operand to every device, as a product's placing does.
  void Spread(const TaskOperand& operand) {
    if (operand.resident == nullptr) return;
    auto& matrix = const_cast<StoredMatrix&>(*operand.resident);
    for (int to = 1; to < kDevices; ++to) {
      auto memory = backend_->devices()[to]->AllocateResident(matrix.bytes());
      ASSERT_TRUE(memory.ok()) << memory.status();
      std::latch done(1);
      backend_->devices()[to]->CopyFrom(
          *matrix.memory(0), **memory, 0, matrix.bytes(),
          [&](const absl::Status&) { done.count_down(); });
      done.wait();
      matrix.AddCopy(*std::move(memory));
    }
  }

  std::vector<RowPart> PartsOf(const TaskSpec& spec) {
    std::vector<RowPart> parts = ShareRows(spec.shape, kDevices, 1);
    EXPECT_GT(parts.size(), 1u);
    for (RowPart& part : parts) {
      if (spec.output_resident == nullptr || part.device == 0) continue;
      part.output = ResidentIo(*backend_, part.device)
                        .Put(part.rows, spec.shape.n, nullptr);
    }
    return parts;
  }

  // Runs a batch's one task as a split.
  BatchReport RunSplit(const Batch& batch) {
    Task& task = *batch.tasks.at(0);
    EXPECT_TRUE(task.Start());
    TaskSpec& spec = task.mutable_spec();
    for (const TaskOperand& x : {spec.a, spec.b, spec.c}) Spread(x);
    std::vector<RowPart> parts = PartsOf(spec);
    TaskResult result;
    std::latch done(1);
    const auto split = std::make_shared<RowSplit>(
        std::move(spec), std::move(parts), backend_->devices(), *scheduler_,
        [&](TaskResult r) {
          result = std::move(r);
          done.count_down();
        });
    EXPECT_TRUE(split->Submit().ok());
    done.wait();
    EXPECT_TRUE(result.ran);
    task.mutable_spec().output = std::move(result.output);
    task.Finish(result.status, result.seconds, result.device, 1);
    return {};
  }

  // A staged product of enough rows for all devices.
  std::shared_ptr<RowSplit> MakeSplit(Ending& ending) {
    BackendProblem problem(backend_->staging(), Kernel(), {900, 4, 6}, 1, 0,
                           random_);
    std::vector<RowPart> parts = PartsOf(problem.spec());
    EXPECT_EQ(parts.size(), size_t{kDevices});
    return std::make_shared<RowSplit>(std::move(problem.spec()),
                                      std::move(parts), backend_->devices(),
                                      *scheduler_, ending.For());
  }

  const SgemmKernel& Kernel() { return **registry_.Find("reference"); }

  void ExpectNothingHeld() {
    EXPECT_TRUE(Eventually([&] {
      return backend_->staging().used_bytes() == 0;
    })) << backend_->staging().used_bytes();
  }

  const unsigned seed_ = std::random_device{}();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__,
                                      ::testing::Message() << "seed " << seed_};
  std::mt19937 random_{seed_};
  const KernelRegistry registry_ = KernelRegistry::Create();
  FaultCounter observer_;
  std::unique_ptr<FaultyBackend> backend_;
  std::unique_ptr<BatchScheduler> scheduler_;
};

TEST_F(RowSplitTest, EveryMixtureOfPlacesGivesTheProduct) {
  SharedPages pages;
  ExpectMixturesAgree(*backend_, pages, Kernel(),
                      {{700, 5, 9},
                       {513, 7, 3, /*transpose_a=*/true, false},
                       {2 * kRowStep, 2, 11, true, /*transpose_b=*/true}},
                      random_,
                      [this](const Batch& batch) { return RunSplit(batch); });
  ExpectNothingHeld();
}

// I6, for a kernel whose sums do not depend on m.
TEST_F(RowSplitTest, ThePartsHaveTheBitsOfTheWhole) {
  SharedPages pages;
  const TestProduct product({800, 6, 40}, 1.5f, 0.5f, random_);
  const Mixture staged = {Where::kStaged, Where::kStaged, Where::kStaged,
                          Where::kStaged};
  MixtureRun split(*backend_, pages, Kernel(),
                   [this](const Batch& batch) { return RunSplit(batch); });
  MixtureRun whole(*backend_, pages, Kernel(), [this](Batch batch) {
    return RunToEnd(*backend_->devices()[1], std::move(batch));
  });
  EXPECT_EQ(split(product, staged), whole(product, staged));
}

TEST_F(RowSplitTest, APartThatFailsFailsTheProductOnce) {
  for (const auto& [fault, code] :
       {std::pair(Fault::kLaunchFailure, absl::StatusCode::kInternal),
        std::pair(Fault::kOutOfMemory, absl::StatusCode::kResourceExhausted),
        std::pair(Fault::kLostAtStart, absl::StatusCode::kInternal)}) {
    Ending ending;
    backend_->device(1).Set(fault);
    MakeSplit(ending)->Submit().IgnoreError();
    ASSERT_TRUE(Eventually([&] { return ending.ended(); }));
    EXPECT_EQ(ending.result.status.code(), code) << ending.result.status;
    EXPECT_EQ(ending.result.output.size(), 0u);
    ExpectNothingHeld();
    EXPECT_EQ(ending.times, 1);
  }
  EXPECT_EQ(observer_.faults, 1);
  // A part of the next one can go to no device.
  Ending later;
  EXPECT_TRUE(absl::IsUnavailable(MakeSplit(later)->Submit()));
  ASSERT_TRUE(Eventually([&] { return later.ended(); }));
  EXPECT_TRUE(absl::IsUnavailable(later.result.status));
  ExpectNothingHeld();
}

// Else a client's next product may find no room.
TEST_F(RowSplitTest, ItsMemoryIsFreeBeforeItsCallerHearsOfTheEnd) {
  for (const Fault fault : {Fault::kNone, Fault::kLaunchFailure,
                            Fault::kOutOfMemory, Fault::kLostAtStart}) {
    backend_->device(1).Set(fault);
    BackendProblem problem(backend_->staging(), Kernel(), {900, 4, 6}, 1, 0,
                           random_);
    std::vector<RowPart> parts = PartsOf(problem.spec());
    std::atomic<bool> ended = false;
    size_t held = 0;
    std::make_shared<RowSplit>(std::move(problem.spec()), std::move(parts),
                               backend_->devices(), *scheduler_,
                               [&](TaskResult result) {
                                 result.output.Reset();
                                 held = backend_->staging().used_bytes();
                                 ended = true;
                               })
        ->Submit()
        .IgnoreError();
    ASSERT_TRUE(Eventually([&] { return ended.load(); }));
    EXPECT_EQ(held, 0u) << static_cast<int>(fault);
  }
}

TEST_F(RowSplitTest, AbortedPartsThatWaitNeverBegin) {
  backend_->device(2).Set(Fault::kStuck);
  Ending busy;
  Ending aborted;
  ASSERT_TRUE(MakeSplit(busy)->Submit().ok());
  ASSERT_TRUE(Eventually([&] { return backend_->device(2).running() == 1; }));
  const auto split = MakeSplit(aborted);
  ASSERT_TRUE(split->Submit().ok());  // its part for device 2 waits
  split->Abort(absl::CancelledError("not wanted"));
  ASSERT_TRUE(Eventually([&] { return aborted.ended(); }));
  EXPECT_TRUE(absl::IsCancelled(aborted.result.status));
  backend_->device(2).Release();
  ASSERT_TRUE(Eventually([&] { return busy.ended(); }));
  EXPECT_EQ(aborted.times, 1);
}

TEST_F(RowSplitTest, OneThatIsAbortedBeforeItIsQueuedEndsThere) {
  Ending ending;
  const auto split = MakeSplit(ending);
  split->Abort(absl::CancelledError("not wanted"));
  EXPECT_TRUE(absl::IsCancelled(split->Submit()));
  ASSERT_TRUE(ending.ended());
  EXPECT_FALSE(ending.result.ran);
  EXPECT_TRUE(absl::IsCancelled(ending.result.status));
}

TEST_F(RowSplitTest, ADeviceThatIsGivenUpKeepsItsMemory) {
  Start({.device_timeout = std::chrono::milliseconds(300)});
  backend_->device(1).Set(Fault::kStuck);
  Ending ending;
  ASSERT_TRUE(MakeSplit(ending)->Submit().ok());
  ASSERT_TRUE(Eventually([&] { return ending.ended(); }));
  EXPECT_EQ(ErrorReason(ending.result.status), "DEVICE_STUCK");
  EXPECT_GT(backend_->staging().used_bytes(), 0u);
  backend_->device(1).Release();
  ExpectNothingHeld();
  EXPECT_EQ(ending.times, 1);
}

// Its devices keep no matrices: the copy home fails.
TEST(RowSplitGatherTest, ACopyHomeThatFailsLosesTheDevice) {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i)
    devices.push_back(std::make_unique<FakeDevice>(i));
  FaultCounter observer;
  const auto scheduler = BatchScheduler::Create({}, devices, &observer);
  const FakeKernel kernel("fake");
  TaskSpec spec;
  spec.shape = {2 * kRowStep, 1, 1};
  spec.kernel = &kernel;
  spec.output_resident = std::make_shared<StoredMatrix>(
      2 * kRowStep, 1, std::make_unique<HostMemory>(2 * kRowStep * 4));
  std::vector<RowPart> parts = ShareRows(spec.shape, 2, 1);
  parts[1].output = std::make_shared<StoredMatrix>(
      kRowStep, 1, std::make_unique<HostMemory>(kRowStep * 4, 1));
  Ending ending;
  ASSERT_TRUE(std::make_shared<RowSplit>(std::move(spec), std::move(parts),
                                         devices, *scheduler, ending.For())
                  ->Submit()
                  .ok());
  for (const auto& device : devices) {
    EXPECT_TRUE(static_cast<FakeDevice&>(*device).CompleteOne());
  }
  EXPECT_EQ(ending.times, 1);
  EXPECT_EQ(ErrorReason(ending.result.status), "DEVICE_FAULT");
  EXPECT_EQ(observer.faults, 1);
}

}  // namespace
}  // namespace gemmd
