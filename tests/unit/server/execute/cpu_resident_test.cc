// Resident and shared operands on the CPU.

#include <gtest/gtest.h>

#include "server/execute/cpu/cpu_backend.h"
#include "tests/unit/server/execute/cpu_fixture.h"
#include "tests/unit/server/execute/operand_mixtures.h"

namespace gemmd {
namespace {

class CpuResidentTest : public CpuFixture {};

TEST_F(CpuResidentTest, EveryMixtureOfPlacesGivesTheSameProduct) {
  SharedPages pages;
  for (const char* const name : {"reference", "openblas"}) {
    const auto kernel = registry_.Find(name);
    ASSERT_TRUE(kernel.ok());
    ExpectMixturesAgree(
        *backend_, pages, **kernel,
        {{37, 21, 55}, {33, 64, 17, true, true}, {1, 130, 70}, {5, 1, 9}},
        random_, [this](Batch batch) { return Run(std::move(batch)); });
  }
  EXPECT_EQ(backend_->staging().used_bytes(), 0u);
}

TEST_F(CpuResidentTest, RefusesWhatThereIsNoRoomForAndTakesItBack) {
  EXPECT_EQ(device().resident_capacity(), size_t{1} << 20);
  auto all = device().AllocateResident(1 << 20);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)->device(), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*all)->data()) % 256, 0u);
  EXPECT_EQ(device().AllocateResident(1).status().code(),
            absl::StatusCode::kResourceExhausted);
  all->reset();
  EXPECT_TRUE(device().AllocateResident(1 << 20).ok());
}

TEST_F(CpuResidentTest, CopiesAWholeMatrix) {
  ResidentIo io(*backend_, 0);
  const TestProduct product({20, 30, 1}, 1, 0, random_);
  const auto from = io.Put(product.c);
  auto memory = device().AllocateResident(from->bytes());
  ASSERT_TRUE(memory.ok());
  std::latch done(1);
  device().CopyFrom(*from->memory(0), **memory, 0, (*memory)->size(),
                    [&](const absl::Status& s) {
                      EXPECT_TRUE(s.ok());
                      done.count_down();
                    });
  done.wait();
  EXPECT_EQ(std::memcmp((*memory)->data(), from->data(0), from->bytes()), 0);
}

// An upload does not wait for a product that takes seconds.
TEST_F(CpuResidentTest, CopiesBesideTheProducts) {
  ResidentIo io(*backend_, 0);
  std::latch copied(1);
  std::latch ran(1);
  class Waiting : public SgemmKernel {
   public:
    explicit Waiting(std::latch& latch)
        : SgemmKernel({.name = "waiting", .description = "waits"}),
          latch_(latch) {}
    absl::Status Supports(const SgemmArgs&) const override { return {}; }
    absl::Status Launch(std::span<const SgemmArgs>,
                        const LaunchContext&) const override {
      latch_.wait();
      return {};
    }

   private:
    std::latch& latch_;
  } kernel(copied);
  Ending ending;
  TaskSpec spec;
  spec.kernel = &kernel;
  Batch batch;
  batch.kernel = &kernel;
  batch.tasks.push_back(std::make_shared<Task>(std::move(spec), ending.For()));
  device().Execute(std::move(batch),
                   [&](const BatchReport&) { ran.count_down(); });
  const TestProduct product({4, 4, 1}, 1, 0, random_);
  EXPECT_EQ(io.Get(*io.Put(product.c)), product.c.values);
  copied.count_down();
  ran.wait();
}

}  // namespace
}  // namespace gemmd
