// Everything at once, below gRPC: clients of both priorities that ask, cancel
// and give up, devices that are slow, full, failing, lost and stuck, and drains
// in the middle of it. Runs under ThreadSanitizer, which gRPC does not.
//
// GEMMD_STRESS_SECONDS says for how long (2); CI takes 60.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/registry.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"
#include "tests/support/faulty_backend.h"

namespace gemmd {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::Fault;
using testing::FaultyBackend;

constexpr int kDevices = 2;
constexpr int kSubmitters = 4;

double StressSeconds() {
  const char* const text = std::getenv("GEMMD_STRESS_SECONDS");
  return text == nullptr ? 2 : std::atof(text);
}

// A product with known bits (I6: whatever happens around it, they are these).
struct Known {
  GemmShape shape;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
};

std::vector<Known> MakeKnown(const SgemmKernel& kernel, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<Known> known;
  for (const GemmShape shape : {GemmShape{4, 4, 4}, GemmShape{1, 16, 16},
                                GemmShape{7, 5, 3}, GemmShape{24, 24, 24}}) {
    Known& k = known.emplace_back();
    k.shape = shape;
    k.a.resize(shape.m * shape.k);
    k.b.resize(shape.k * shape.n);
    k.c.resize(shape.m * shape.n);
    for (float& x : k.a) x = uniform(random);
    for (float& x : k.b) x = uniform(random);
    const SgemmArgs args{.shape = shape,
                         .a = k.a.data(),
                         .lda = shape.k,
                         .b = k.b.data(),
                         .ldb = shape.n,
                         .c = k.c.data(),
                         .ldc = shape.n};
    EXPECT_TRUE(kernel.Launch({&args, 1}, LaunchContext{}).ok());
  }
  return known;
}

class FaultCounter : public BatchObserver {
 public:
  void OnBatch(const Batch&, const BatchReport&) override {}
  void OnQueueDepth(int requests, size_t bytes) override { depth = requests; }
  void OnStreams(int, int) override {}
  void OnDeviceFault(int, const absl::Status&) override { ++faults; }
  std::atomic<int> depth{0};
  std::atomic<int> faults{0};
};

// One server's life below gRPC.
class Engine {
 public:
  Engine(const KernelRegistry& registry, const std::vector<Known>& known,
         unsigned seed)
      : known_(known), kernel_(**registry.Find("reference")), random_(seed) {
    backend_ = *FaultyBackend::Create(
        {.streams_per_device = 2, .staging_bytes = size_t{8} << 20}, registry,
        kDevices);
    scheduler_ = BatchScheduler::Create(
        {.queue = {.max_batch_requests = 1 + static_cast<int>(random_() % 8),
                   .max_queue_delay = microseconds(random_() % 2 * 100)},
         .device_timeout = milliseconds(200)},
        backend_->devices(), &observer_);
  }

  void Run() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kSubmitters; ++i) {
      threads.emplace_back([this, seed = random_()] { Submit(seed); });
    }
    MakeTrouble();
    stop_ = true;
    const bool drain_at_once = random_() % 2 == 0;
    scheduler_->Drain(MonotonicClock::now() +
                      (drain_at_once ? milliseconds(0) : milliseconds(2000)));
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < kDevices; ++i) backend_->device(i).Release();
    scheduler_.reset();
  }

  // After Run.
  void ExpectAllEndedOnce() {
    EXPECT_EQ(ended_, submitted_);
    EXPECT_EQ(wrong_, 0);
    EXPECT_EQ(observer_.depth, 0);
    EXPECT_EQ(backend_->staging().used_bytes(), 0u);
    EXPECT_EQ(admission_.requests(), 0);
    EXPECT_EQ(admission_.bytes(), 0u);
  }

  int submitted() const { return submitted_; }
  int succeeded() const { return succeeded_; }

 private:
  // A product of one of two clients; false if it was refused.
  bool SubmitOne(std::mt19937& random) {
    const Known& known = known_[random() % known_.size()];
    const size_t a_bytes = 256 * (known.a.size() / 64 + 1);
    const size_t in_bytes = a_bytes + known.b.size() * sizeof(float);
    const std::string client = std::to_string(random() % 3);
    auto ticket =
        admission_.Admit(client, in_bytes + known.c.size() * sizeof(float));
    if (!ticket.ok()) return false;
    auto input = backend_->staging().Allocate(in_bytes);
    auto output = backend_->staging().Allocate(known.c.size() * sizeof(float));
    if (!input.ok() || !output.ok()) return false;
    std::memcpy(input->data(), known.a.data(), known.a.size() * 4);
    std::memcpy(input->data() + a_bytes, known.b.data(), known.b.size() * 4);
    TaskSpec spec;
    spec.shape = known.shape;
    spec.kernel = &kernel_;
    spec.a = {.offset = 0, .leading_dimension = known.shape.k};
    spec.b = {.offset = a_bytes, .leading_dimension = known.shape.n};
    spec.input = *std::move(input);
    spec.output = *std::move(output);
    spec.client = client;
    spec.priority =
        random() % 3 == 0 ? Priority::kBulk : Priority::kInteractive;
    if (random() % 4 == 0) spec.device = static_cast<int>(random() % kDevices);
    if (random() % 4 == 0) {
      spec.deadline = MonotonicClock::now() + microseconds(random() % 5000);
    }
    const auto task = std::make_shared<Task>(
        std::move(spec),
        [this, &known, held = *std::move(ticket)](TaskResult result) {
          if (result.status.ok()) {
            ++succeeded_;
            wrong_ += std::memcmp(result.output.data(), known.c.data(),
                                  known.c.size() * 4) != 0;
          }
          ++ended_;
        });
    ++submitted_;
    if (absl::Status status = scheduler_->Submit(task); !status.ok()) {
      EXPECT_TRUE(task->Abort(status));
    } else if (random() % 5 == 0) {
      task->Abort(absl::CancelledError("by the client"));
    }
    return true;
  }

  void Submit(unsigned seed) {
    std::mt19937 random(seed);
    while (!stop_) {
      if (!SubmitOne(random)) std::this_thread::sleep_for(microseconds(50));
    }
  }

  // Faults that devices survive, then perhaps one that they do not.
  void MakeTrouble() {
    constexpr std::array<Fault, 4> kSurvived = {
        Fault::kNone, Fault::kSlow, Fault::kOutOfMemory, Fault::kLaunchFailure};
    constexpr std::array<Fault, 5> kLast = {
        Fault::kNone, Fault::kStuck, Fault::kLostBeforeStart,
        Fault::kLostAtStart, Fault::kLostMidway};
    for (int i = 0; i < 20; ++i) {
      backend_->device(static_cast<int>(random_() % kDevices))
          .Set(kSurvived[random_() % kSurvived.size()]);
      std::this_thread::sleep_for(milliseconds(5));
    }
    for (int i = 0; i < kDevices; ++i) backend_->device(i).Set(Fault::kNone);
    std::this_thread::sleep_for(milliseconds(20));
    for (int i = 0; i < kDevices; ++i) {
      backend_->device(i).Set(kLast[random_() % kLast.size()]);
    }
    std::this_thread::sleep_for(milliseconds(random_() % 300));
  }

  const std::vector<Known>& known_;
  const SgemmKernel& kernel_;
  std::mt19937 random_;
  FaultCounter observer_;
  Admission admission_{{.max_requests = 200, .max_bytes = size_t{4} << 20}};
  std::unique_ptr<FaultyBackend> backend_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::atomic<bool> stop_{false};
  std::atomic<int> submitted_{0};
  std::atomic<int> ended_{0};
  std::atomic<int> succeeded_{0};
  std::atomic<int> wrong_{0};
};

TEST(EngineStressTest, EverythingAtOnceEndsEveryTaskOnceWithItsOwnBits) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const KernelRegistry registry = KernelRegistry::Create();
  const std::vector<Known> known =
      MakeKnown(**registry.Find("reference"), random);
  const MonotonicTime end = MonotonicClock::now() +
                            std::chrono::duration_cast<MonotonicDuration>(
                                std::chrono::duration<double>(StressSeconds()));
  int submitted = 0;
  int succeeded = 0;
  do {
    Engine engine(registry, known, random());
    engine.Run();
    engine.ExpectAllEndedOnce();
    submitted += engine.submitted();
    succeeded += engine.succeeded();
  } while (MonotonicClock::now() < end && !HasFailure());
  EXPECT_GT(succeeded, 0);
  std::printf("%d products, %d of them computed\n", submitted, succeeded);
}

}  // namespace
}  // namespace gemmd
