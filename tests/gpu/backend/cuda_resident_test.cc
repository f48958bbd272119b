// Resident and shared operands on a real device.

#include <cuda_runtime.h>

#include <chrono>
#include <thread>

#include "server/execute/cuda/cuda_device.h"
#include "tests/gpu/backend/cuda_fixture.h"
#include "tests/unit/server/execute/memory_reuse.h"
#include "tests/unit/server/execute/operand_mixtures.h"

namespace gemmd {
namespace {

class CudaResidentTest : public CudaBackendFixture {
 protected:
  void SetUp() override { Make({.resident_bytes = size_t{1} << 30}); }

  MixtureRun::Run Runner() {
    return [this](Batch batch) { return Run(std::move(batch)); };
  }
};

const std::vector<GemmShape> kShapes = {{37, 21, 55},
                                        {64, 64, 64, true, true},
                                        {1, 130, 70},
                                        {130, 260, 33, false, true}};

TEST_F(CudaResidentTest, EveryMixtureOfPlacesGivesTheSameProduct) {
  SharedPages pages;  // not pinned: slow, and right
  for (const SgemmKernel* const kernel : Kernels()) {
    if (kernel->info().precision != Precision::kFp32) continue;
    ExpectMixturesAgree(*backend_, pages, *kernel, kShapes, random_, Runner());
  }
  EXPECT_EQ(staging().used_bytes(), 0u);
  EXPECT_EQ(dynamic_cast<CudaDevice&>(device()).memory().used(), 0u);
}

TEST_F(CudaResidentTest, EveryMixtureWithPinnedPagesToo) {
  SharedPages pages;
  const absl::Status pinned = backend_->Pin(pages.data(), SharedPages::kBytes);
  ASSERT_TRUE(pinned.ok()) << pinned;
  ExpectMixturesAgree(*backend_, pages, Kernel("naive"), kShapes, random_,
                      Runner());
  backend_->Unpin(pages.data());
  EXPECT_FALSE(
      backend_->Pin(pages.data() + 1, size_t{1} << 60).ok());  // and no trace
  ExpectMixturesAgree(*backend_, pages, Kernel("naive"), {{5, 6, 7}}, random_,
                      Runner());
}

// I7: whatever other clients left in the device's memory, no mixture shows it.
TEST_F(CudaResidentTest, EveryMixtureOnMemoryThatOthersLeft) {
  SharedPages pages;
  const SgemmKernel& kernel = Kernel("naive");
  MixtureRun run(*backend_, pages, kernel, Runner());
  for (const float beta : {0.0f, 1.0f}) {
    const TestProduct product({37, 21, 55}, 1, beta, random_);
    for (const Mixture& mixture : Mixtures(beta != 0)) {
      LeaveSecrets(staging(), kernel, random_, Runner());
      ASSERT_LE(product.Error(run(product, mixture)), 1);
    }
  }
}

TEST_F(CudaResidentTest, NothingIsCopiedThatIsThere) {
  const SgemmKernel& kernel = Kernel("naive");
  const TestProduct product({64, 32, 16}, 1, 1, random_);
  ResidentIo io(*backend_, 0);
  TaskSpec spec;
  spec.shape = product.shape;
  spec.beta = 1;
  spec.kernel = &kernel;
  spec.a.resident = io.Put(product.a);
  spec.b.resident = io.Put(product.b);
  spec.c.resident = io.Put(product.c);
  const auto output = io.Put(64, 32, nullptr);
  spec.output_resident = output;
  Ending ending;
  Batch batch;
  batch.kernel = &kernel;
  batch.tasks.push_back(std::make_shared<Task>(std::move(spec), ending.For()));
  const BatchReport report = Run(std::move(batch));
  EXPECT_EQ(report.h2d_bytes, 0u);
  EXPECT_EQ(report.d2h_bytes, 0u);
  EXPECT_LE(product.Error(io.Get(*output)), 1);
}

TEST_F(CudaResidentTest, ABatchMixesPlaces) {
  SharedPages pages;
  for (const SgemmKernel* const kernel : Kernels()) {
    if (kernel->info().precision != Precision::kFp32) continue;
    const TestProduct product({40, 50, 60}, 1, 0, random_);
    ResidentIo io(*backend_, 0);
    const auto b = io.Put(product.b);
    std::vector<Ending> endings(8);
    std::vector<std::shared_ptr<StoredMatrix>> outputs(8);
    Batch batch;
    batch.kernel = kernel;
    for (size_t i = 0; i < endings.size(); ++i) {
      TaskSpec spec;
      spec.shape = product.shape;
      spec.kernel = kernel;
      spec.a.leading_dimension = 60;
      spec.input = *staging().Allocate(product.a.bytes());
      std::memcpy(spec.input.data(), product.a.values.data(),
                  product.a.bytes());
      spec.b.resident = b;
      if (i % 2 == 0) {
        outputs[i] = io.Put(40, 50, nullptr);
        spec.output_resident = outputs[i];
      } else {
        spec.output = *staging().Allocate(40 * 50 * 4);
      }
      batch.tasks.push_back(
          std::make_shared<Task>(std::move(spec), endings[i].For()));
    }
    const BatchReport report = Run(std::move(batch));
    ASSERT_TRUE(report.status.ok()) << report.status;
    EXPECT_EQ(report.h2d_bytes, 8 * product.a.bytes());
    EXPECT_EQ(report.d2h_bytes, 4 * product.c.bytes());
    for (size_t i = 0; i < endings.size(); ++i) {
      ASSERT_TRUE(endings[i].result.status.ok()) << endings[i].result.status;
      const StagingBuffer& staged = endings[i].result.output;
      const std::vector<float> got =
          outputs[i] != nullptr
              ? io.Get(*outputs[i])
              : std::vector<float>(staged.floats(),
                                   staged.floats() + staged.size() / 4);
      EXPECT_LE(product.Error(got), 1) << kernel->info().name << ' ' << i;
    }
  }
}

TEST_F(CudaResidentTest, UploadsAndDownloadsInChunksAtTheBussPace) {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr size_t kChunk = size_t{1} << 20;
  auto memory = device().AllocateResident(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto word = [](size_t i) {
    return static_cast<uint32_t>(i * 2654435761u);
  };
  // In: many chunks in flight, as several streams would have.
  std::latch in(kBytes / kChunk);
  std::vector<StagingBuffer> chunks;
  for (size_t offset = 0; offset < kBytes; offset += kChunk) {
    chunks.push_back(*staging().Allocate(std::min(kChunk, kBytes)));
    auto* const words = reinterpret_cast<uint32_t*>(chunks.back().data());
    for (size_t i = 0; i < kChunk / 4; ++i) words[i] = word(offset / 4 + i);
    if (chunks.size() == 64 || offset + kChunk == kBytes) {
      size_t at = offset + kChunk - chunks.size() * kChunk;
      const size_t count = chunks.size();
      const MonotonicTime start = MonotonicClock::now();
      std::latch some(static_cast<ptrdiff_t>(count));
      for (StagingBuffer& chunk : chunks) {
        device().CopyIn(**memory, at, std::move(chunk),
                        [&](const absl::Status& status, StagingBuffer) {
                          EXPECT_TRUE(status.ok());
                          some.count_down();
                          in.count_down();
                        });
        at += kChunk;
      }
      some.wait();
      std::printf(
          "in: %.1f GB/s\n",
          1e-9 * count * kChunk / Seconds(MonotonicClock::now() - start));
      chunks.clear();
    }
  }
  in.wait();
  // Out: checked word by word.
  const MonotonicTime start = MonotonicClock::now();
  std::atomic<size_t> wrong{0};
  size_t offset = 0;
  while (offset < kBytes) {
    std::latch some(64);
    for (int i = 0; i < 64; ++i, offset += kChunk) {
      device().CopyOut(
          **memory, offset, *staging().Allocate(kChunk),
          [&, offset](const absl::Status& status, StagingBuffer buffer) {
            EXPECT_TRUE(status.ok());
            const auto* const words =
                reinterpret_cast<const uint32_t*>(buffer.data());
            for (size_t w = 0; w < kChunk / 4; w += 1021) {
              wrong += words[w] != word(offset / 4 + w);
            }
            some.count_down();
          });
    }
    some.wait();
  }
  std::printf("out: %.1f GB/s\n",
              1e-9 * kBytes / Seconds(MonotonicClock::now() - start));
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(staging().used_bytes(), 0u);
}

TEST_F(CudaResidentTest, CopiesGoOnBesideALongProduct) {
  const SgemmKernel& kernel = Kernel("naive");
  const int64_t n = 8192;
  ResidentIo io(*backend_, 0);
  const std::vector<float> zeros(n * n);
  TaskSpec spec;
  spec.shape = {n, n, n};
  spec.kernel = &kernel;
  const auto operand = io.Put(n, n, zeros.data());
  spec.a.resident = operand;
  spec.b.resident = operand;
  spec.output_resident = io.Put(n, n, nullptr);
  Ending ending;
  Batch batch;
  batch.kernel = &kernel;
  batch.tasks.push_back(std::make_shared<Task>(std::move(spec), ending.For()));
  std::latch ran(1);
  device().Execute(std::move(batch),
                   [&](const BatchReport&) { ran.count_down(); });
  const TestProduct product({16, 16, 1}, 1, 0, random_);
  EXPECT_EQ(io.Get(*io.Put(product.c)), product.c.values);
  EXPECT_FALSE(ending.ended()) << "the copies waited for the product";
  ran.wait();
}

// I3: an allocation asks the driver for nothing and takes microseconds.
TEST_F(CudaResidentTest, AllocatesWithoutTheDriver) {
  size_t before = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  std::vector<std::unique_ptr<ResidentMemory>> held;
  const MonotonicTime start = MonotonicClock::now();
  constexpr int kCount = 1000;
  for (int i = 0; i < kCount; ++i) {
    auto memory = device().AllocateResident(1 + random_() % (1 << 20));
    ASSERT_TRUE(memory.ok()) << memory.status();
    held.push_back(*std::move(memory));
    if (held.size() == 100) held.erase(held.begin() + random_() % 100);
  }
  const double us = 1e6 * Seconds(MonotonicClock::now() - start) / kCount;
  std::printf("%.2f us an allocation\n", us);
  EXPECT_LT(us, 10);
  size_t after = 0;
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(before, after);
}

TEST_F(CudaResidentTest, TakesHalfOfWhatIsFreeByDefault) {
  backend_.reset();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  size_t free_bytes = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
  const MonotonicTime start = MonotonicClock::now();
  Make({.resident_bytes = std::nullopt});
  std::printf("made in %.3f s with %.1f GiB for matrices\n",
              Seconds(MonotonicClock::now() - start),
              device().resident_capacity() / 1073741824.0);
  EXPECT_GT(device().resident_capacity(), free_bytes / 5 * 2);
  EXPECT_LT(device().resident_capacity(), free_bytes / 2);
  Make({});
  EXPECT_EQ(device().resident_capacity(), 0u);
  EXPECT_FALSE(device().AllocateResident(1).ok());
}

// One way at a time; the best of some, since the first also sets things up.
TEST_F(CudaResidentTest, CopiesFromDeviceToDeviceAtItsSpeed) {
  constexpr size_t kBytes = size_t{1} << 30;
  Make({.resident_bytes = kBytes});
  const int devices = static_cast<int>(backend_->devices().size());
  if (devices < 2) GTEST_SKIP() << "there is one device";
  std::vector<std::unique_ptr<ResidentMemory>> memory;
  for (const auto& device : backend_->devices()) {
    auto allocated = device->AllocateResident(kBytes);
    ASSERT_TRUE(allocated.ok()) << allocated.status();
    memory.push_back(*std::move(allocated));
  }
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from == to) continue;
      double best = 0;
      for (int i = 0; i < 5; ++i) {
        std::latch done(1);
        const MonotonicTime start = MonotonicClock::now();
        backend_->devices()[to]->CopyFrom(*memory[from], *memory[to], 0, kBytes,
                                          [&](const absl::Status& status) {
                                            EXPECT_TRUE(status.ok()) << status;
                                            done.count_down();
                                          });
        done.wait();
        const double seconds = Seconds(MonotonicClock::now() - start);
        best = std::max(best, kBytes / seconds / 1e9);
      }
      std::printf("%.1f GB/s from device %d to %d\n", best, from, to);
    }
  }
}

TEST_F(CudaResidentTest, CopiesFromDeviceToDevice) {
  Make({.resident_bytes = size_t{64} << 20});
  const TestProduct product({200, 300, 1}, 1, 0, random_);
  for (size_t from = 0; from < backend_->devices().size(); ++from) {
    for (size_t to = 0; to < backend_->devices().size(); ++to) {
      ResidentIo source(*backend_, static_cast<int>(from));
      ResidentIo target(*backend_, static_cast<int>(to));
      const auto matrix = source.Put(product.c);
      const auto copy = target.Put(200, 300, nullptr);
      const ResidentMemory& memory = *copy->memory(static_cast<int>(to));
      std::latch done(1);
      backend_->devices()[to]->CopyFrom(*matrix->memory(static_cast<int>(from)),
                                        memory, 0, memory.size(),
                                        [&](const absl::Status& status) {
                                          EXPECT_TRUE(status.ok()) << status;
                                          done.count_down();
                                        });
      done.wait();
      EXPECT_EQ(target.Get(*copy), product.c.values) << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace gemmd
