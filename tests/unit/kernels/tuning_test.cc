#include "kernels/tuning.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/fake_tuning_device.h"
#include "tests/unit/kernels/named_kernel.h"

namespace gemmd {
namespace {

class TuneTest : public testing::Test {
 protected:
  void Add(const std::string& name, MemorySpace space = MemorySpace::kDevice,
           int64_t m_limit = 100'000) {
    KernelEntry& entry = entries_.emplace_back();
    entry.info.name = name;
    entry.info.space = space;
    entry.kernel = std::make_unique<NamedKernel>(entry.info, m_limit);
  }
  absl::StatusOr<SelectionTable> Run() {
    const KernelRegistry registry(std::move(entries_));
    return Tune(registry, device_, {.gpu = "a GPU"}, grid_,
                [this](int done, int of, absl::string_view what) {
                  progress_.push_back(std::to_string(done) + "/" +
                                      std::to_string(of) + " " +
                                      std::string(what));
                });
  }
  static double Predicted(const SelectionTable& table, const SgemmArgs& args,
                          size_t kernel) {
    std::vector<double> us(table.kernels().size());
    table.Predict(args, us);
    return us[kernel];
  }

  const SelectionGrid grid_ = {.m = {16, 64}, .n = {16, 64}, .k = {8, 32, 64}};
  std::vector<KernelEntry> entries_;
  FakeTuningDevice device_;
  std::vector<std::string> progress_;
};

TEST_F(TuneTest, MeasuresEveryDeviceKernelAtEveryShape) {
  Add("openblas", MemorySpace::kHost);
  Add("one");
  Add("two");
  entries_.emplace_back().info = {.name = "missing",
                                  .space = MemorySpace::kDevice};
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->kernels(), (std::vector<std::string>{"one", "two"}));
  const int shapes = static_cast<int>(grid_.size()) * SelectionClass::kCount;
  EXPECT_EQ(device_.measured["one"], shapes);
  EXPECT_EQ(device_.measured["two"], shapes);
  EXPECT_EQ(progress_.size(), 4u * SelectionClass::kCount);
  EXPECT_EQ(progress_.front(), "1/32 NN aligned 16 x 16");
  EXPECT_EQ(progress_.back(), "32/32 TT unaligned 64 x 64");
  const SgemmArgs args = ArgsOf({true, false, false}, 64, 16, 32);
  EXPECT_EQ(Predicted(*table, args, 0), args.shape.flops());
}

TEST_F(TuneTest, AsksForOperandsOfTheClass) {
  Add("one");
  std::map<int, int> classes;
  device_.answer = [&](const std::string&, const SgemmArgs& like) {
    ++classes[ClassOf(like).index()];
    EXPECT_GE(like.lda, StoredColsA(like.shape));
    EXPECT_GE(like.ldb, StoredColsB(like.shape));
    EXPECT_GE(like.ldc, like.shape.n);
    return 1.0;
  };
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(classes.size(), size_t{SelectionClass::kCount});
  for (const auto& [c, count] : classes) {
    EXPECT_EQ(count, static_cast<int>(grid_.size())) << c;
  }
}

TEST_F(TuneTest, LeavesOutWhatIsWrongOrNotSupported) {
  Add("right");
  Add("wrong");
  Add("narrow", MemorySpace::kDevice, /*m_limit=*/16);
  device_.answer = [](const std::string& name,
                      const SgemmArgs&) -> absl::StatusOr<double> {
    if (name == "wrong") return absl::DataLossError("3 times the bound");
    return 5.0;
  };
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_TRUE(std::isinf(Predicted(*table, ArgsOf({}, 16, 16, 8), 1)));
  EXPECT_EQ(Predicted(*table, ArgsOf({}, 16, 16, 8), 2), 5.0);
  EXPECT_TRUE(std::isinf(Predicted(*table, ArgsOf({}, 64, 16, 8), 2)));
  EXPECT_THAT(progress_,
              testing::Contains("0/0 wrong at 16 x 16 x 8: 3 times the bound"));
}

TEST_F(TuneTest, DoesNotWaitForWhatIsFarBehind) {
  Add("quick");
  Add("slow");
  device_.answer = [](const std::string& name, const SgemmArgs&) {
    return name == "slow" ? 1000.0 : 1.0;
  };
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  // Twice for each line of three k.
  EXPECT_EQ(device_.measured["slow"], device_.measured["quick"] / 3 * 2);
  EXPECT_EQ(Predicted(*table, ArgsOf({}, 16, 16, 32), 1), 1000.0);
  EXPECT_TRUE(std::isinf(Predicted(*table, ArgsOf({}, 16, 16, 64), 1)));
}

// What is over at once costs little to measure, and may have another way to
// compute what comes later.
TEST_F(TuneTest, WaitsForWhatIsShort) {
  Add("quick");
  Add("short");
  device_.answer = [](const std::string& name, const SgemmArgs&) {
    return name == "short" ? kWorthDroppingUs : 1.0;
  };
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Predicted(*table, ArgsOf({}, 16, 16, 64), 1), kWorthDroppingUs);
}

TEST_F(TuneTest, LeavesTheFirstStepsOfTheLadderOut) {
  Add("naive");
  Add("one");
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->kernels(), std::vector<std::string>{"one"});
}

TEST_F(TuneTest, WaitsForWhatCatchesUp) {
  Add("steep");
  Add("flat");
  device_.answer = [](const std::string& name, const SgemmArgs& like) {
    return name == "flat" ? 100.0 : static_cast<double>(like.shape.k);
  };
  const auto table = Run();
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(Predicted(*table, ArgsOf({}, 16, 16, 64), 1), 100.0);
}

TEST_F(TuneTest, EndsWhereTheDeviceFails) {
  Add("one");
  device_.answer = [](const std::string&, const SgemmArgs&) {
    return absl::StatusOr<double>(absl::InternalError("cudaMalloc: no"));
  };
  const auto table = Run();
  EXPECT_EQ(table.status(), absl::InternalError("cudaMalloc: no"));
}

TEST_F(TuneTest, NeedsAKernel) {
  Add("openblas", MemorySpace::kHost);
  EXPECT_EQ(Run().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace gemmd
