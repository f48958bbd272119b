#include "kernels/selection.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tuning.h"
#include "tests/unit/kernels/named_kernel.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

class SelectKernelTest : public testing::Test {
 protected:
  void Add(const std::string& name, MemorySpace space,
           Precision precision = Precision::kFp32, int64_t m_limit = 100'000) {
    KernelEntry& entry = entries_.emplace_back();
    entry.info.name = name;
    entry.info.precision = precision;
    entry.info.space = space;
    entry.kernel = std::make_unique<NamedKernel>(entry.info, m_limit);
  }
  void AddMissing(const std::string& name) {
    KernelEntry& entry = entries_.emplace_back();
    entry.info.name = name;
    entry.info.space = MemorySpace::kDevice;
    entry.unavailable_reason = name + " is not there";
  }

  // The name of the kernel picked, or the error.
  std::string Select(MemorySpace space, const GemmShape& shape,
                     Precision precision = Precision::kFp32,
                     absl::string_view name = "auto") {
    if (!entries_.empty()) {
      registry_ = std::make_unique<KernelRegistry>(std::move(entries_));
      entries_.clear();
      registry_->UseTable(table_);
    }
    const auto kernel =
        SelectKernel(*registry_, space, {.shape = shape}, precision, name);
    return kernel.ok() ? (*kernel)->info().name : kernel.status().ToString();
  }

  std::vector<KernelEntry> entries_;
  std::unique_ptr<KernelRegistry> registry_;
  std::shared_ptr<const SelectionTable> table_;
};

// A table in which each kernel takes the same time for every shape.
std::shared_ptr<const SelectionTable> FlatTable(
    const std::vector<std::pair<std::string, float>>& us_of_kernels) {
  const SelectionGrid grid = {.m = {1, 64}, .n = {1, 64}, .k = {1, 64}};
  std::vector<std::string> kernels;
  std::vector<float> us;
  for (const auto& [kernel, time] : us_of_kernels) kernels.push_back(kernel);
  for (size_t i = 0; i < grid.size() * SelectionClass::kCount; ++i) {
    for (const auto& [kernel, time] : us_of_kernels) us.push_back(time);
  }
  return std::make_shared<const SelectionTable>(SelectionStamp{.gpu = "a GPU"},
                                                grid, kernels, us);
}

constexpr GemmShape kSmall{64, 64, 64};
constexpr GemmShape kLarge{1024, 1024, 1024};

TEST_F(SelectKernelTest, AutoOnTheHostIsOpenblas) {
  Add("reference", MemorySpace::kHost);
  Add("openblas", MemorySpace::kHost);
  EXPECT_EQ(Select(MemorySpace::kHost, kSmall), "openblas");
  EXPECT_EQ(Select(MemorySpace::kHost, kLarge), "openblas");
  EXPECT_EQ(Select(MemorySpace::kHost, kLarge, Precision::kTf32, ""),
            "openblas");
}

TEST_F(SelectKernelTest, AutoFallsBackToTheReferenceForHugeSizes) {
  Add("reference", MemorySpace::kHost, Precision::kFp32, int64_t{1} << 40);
  Add("openblas", MemorySpace::kHost, Precision::kFp32, 1000);
  EXPECT_EQ(Select(MemorySpace::kHost, kLarge), "reference");
}

TEST_F(SelectKernelTest, AutoOnADeviceGoesByTheShape) {
  Add("naive", MemorySpace::kDevice);
  Add("double_buffered", MemorySpace::kDevice);
  Add("cublas", MemorySpace::kDevice);
  EXPECT_EQ(Select(MemorySpace::kDevice, kSmall), "double_buffered");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "cublas");
}

TEST_F(SelectKernelTest, AutoForSmallProductsHasSmallTiles) {
  Add("double_buffered", MemorySpace::kDevice);
  Add("small_tiles", MemorySpace::kDevice);
  EXPECT_EQ(Select(MemorySpace::kDevice, kSmall), "small_tiles");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "double_buffered");
}

TEST_F(SelectKernelTest, AutoOnHopperGoesByShapeAlignmentAndPrecision) {
  for (const char* name : {"naive", "double_buffered", "cublas", "sm90_ffma"}) {
    Add(name, MemorySpace::kDevice);
  }
  Add("sm90_bf16x6", MemorySpace::kDevice, Precision::kFp32Emulated);
  const auto select = [&](const GemmShape& shape, Precision precision) {
    return Select(MemorySpace::kDevice, shape, precision);
  };
  constexpr GemmShape kHuge{4096, 4096, 1024};
  EXPECT_EQ(select(kHuge, Precision::kFp32), "sm90_ffma");
  EXPECT_EQ(select(kHuge, Precision::kFp32Emulated), "sm90_bf16x6");
  EXPECT_EQ(select(kHuge, Precision::kTf32), "sm90_bf16x6");
  EXPECT_EQ(select(kLarge, Precision::kFp32Emulated), "sm90_ffma");
  EXPECT_EQ(select(kSmall, Precision::kFp32Emulated), "double_buffered");
  // Skinny, deep.
  EXPECT_EQ(select({32, 4096, 4096}, Precision::kFp32), "cublas");
  EXPECT_EQ(select({4096, 32, 4096}, Precision::kFp32Emulated), "cublas");
  EXPECT_EQ(select({256, 256, 65536}, Precision::kFp32), "cublas");
}

TEST_F(SelectKernelTest, AutoOnHopperCopiesNoOperandForAShortK) {
  Add("cublas", MemorySpace::kDevice);
  Add("sm90_ffma", MemorySpace::kDevice);
  const KernelRegistry registry(std::move(entries_));
  const auto select = [&](int64_t k, int64_t lda, int64_t ldb) {
    const auto kernel = SelectKernel(
        registry, MemorySpace::kDevice,
        {.shape = {4096, 4096, k}, .lda = lda, .ldb = ldb, .ldc = 4096},
        Precision::kFp32, "auto");
    return kernel.ok() ? (*kernel)->info().name : kernel.status().ToString();
  };
  EXPECT_EQ(select(1024, 1024, 4096), "sm90_ffma");
  EXPECT_EQ(select(1024, 1025, 4096), "cublas");
  EXPECT_EQ(select(1024, 1024, 4097), "cublas");
  EXPECT_EQ(select(2048, 2049, 4097), "sm90_ffma");
}

TEST_F(SelectKernelTest, AutoWithoutCublasIsOurOwn) {
  Add("naive", MemorySpace::kDevice);
  Add("double_buffered", MemorySpace::kDevice);
  AddMissing("cublas");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "double_buffered");
}

TEST_F(SelectKernelTest, AutoSaysWhyNothingCanRun) {
  AddMissing("cublas");
  AddMissing("double_buffered");
  AddMissing("naive");
  EXPECT_THAT(Select(MemorySpace::kDevice, kLarge),
              testing::AllOf(HasSubstr("FAILED_PRECONDITION"),
                             HasSubstr("cublas is not there"),
                             HasSubstr("naive is not there")));
}

TEST_F(SelectKernelTest, AutoTakesWhatTheTableSaysIsFastest) {
  for (const char* name : {"slow", "quick", "not_measured"}) {
    Add(name, MemorySpace::kDevice);
  }
  table_ = FlatTable({{"slow", 3.0f}, {"quick", 2.0f}, {"not_here", 1.0f}});
  EXPECT_EQ(Select(MemorySpace::kDevice, kSmall), "quick");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "quick");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge, Precision::kFp32, "slow"),
            "slow");
}

TEST_F(SelectKernelTest, AutoPassesOverWhatCannotDoTheRequest) {
  Add("slow", MemorySpace::kDevice);
  Add("skinny", MemorySpace::kDevice, Precision::kFp32, /*m_limit=*/64);
  Add("emulated", MemorySpace::kDevice, Precision::kFp32Emulated);
  AddMissing("missing");
  table_ = FlatTable({{"slow", 4.0f},
                      {"skinny", 3.0f},
                      {"emulated", 2.0f},
                      {"missing", 1.0f}});
  EXPECT_EQ(Select(MemorySpace::kDevice, kSmall), "skinny");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "slow");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge, Precision::kFp32Emulated),
            "emulated");
}

TEST_F(SelectKernelTest, AutoGoesByTheRuleWhereTheTableKnowsNothing) {
  Add("naive", MemorySpace::kDevice);
  Add("openblas", MemorySpace::kHost);
  table_ = FlatTable({{"gone", 1.0f}});
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "naive");
  EXPECT_EQ(Select(MemorySpace::kHost, kLarge), "openblas");
}

TEST_F(SelectKernelTest, ANamedKernelIsTaken) {
  Add("reference", MemorySpace::kHost);
  Add("openblas", MemorySpace::kHost);
  EXPECT_EQ(Select(MemorySpace::kHost, kLarge, Precision::kFp32, "reference"),
            "reference");
}

TEST_F(SelectKernelTest, ANamedKernelMustExistAndRunHere) {
  Add("openblas", MemorySpace::kHost);
  AddMissing("cublas");
  EXPECT_THAT(Select(MemorySpace::kHost, kLarge, Precision::kFp32, "mkl"),
              testing::EndsWith("NOT_FOUND: there is no kernel 'mkl'; the "
                                "kernels of this server: openblas"));
  EXPECT_THAT(Select(MemorySpace::kDevice, kLarge, Precision::kFp32, "cublas"),
              HasSubstr("FAILED_PRECONDITION: the kernel cublas cannot run "
                        "here: cublas is not there; the kernels of this "
                        "server: none"));
  EXPECT_THAT(
      Select(MemorySpace::kDevice, kLarge, Precision::kFp32, "openblas"),
      HasSubstr("FAILED_PRECONDITION: the kernel openblas runs on the CPU"));
}

TEST_F(SelectKernelTest, ANamedKernelMustSupportTheRequest) {
  Add("openblas", MemorySpace::kHost, Precision::kFp32, 10);
  EXPECT_THAT(Select(MemorySpace::kHost, kLarge, Precision::kFp32, "openblas"),
              HasSubstr("FAILED_PRECONDITION: openblas has no such m"));
}

TEST_F(SelectKernelTest, ANamedKernelMustReachThePrecision) {
  Add("fp32", MemorySpace::kDevice, Precision::kFp32);
  Add("emulated", MemorySpace::kDevice, Precision::kFp32Emulated);
  Add("tf32", MemorySpace::kDevice, Precision::kTf32);
  const auto select = [&](Precision floor, absl::string_view name) {
    return Select(MemorySpace::kDevice, kLarge, floor, name);
  };
  EXPECT_EQ(select(Precision::kFp32, "fp32"), "fp32");
  EXPECT_EQ(select(Precision::kFp32Emulated, "fp32"), "fp32");
  EXPECT_EQ(select(Precision::kFp32Emulated, "emulated"), "emulated");
  EXPECT_EQ(select(Precision::kTf32, "tf32"), "tf32");
  EXPECT_THAT(select(Precision::kFp32, "emulated"),
              HasSubstr("gives FP32_EMULATED; the request asks for FP32"));
  EXPECT_THAT(select(Precision::kFp32Emulated, "tf32"),
              HasSubstr("FAILED_PRECONDITION"));
}

TEST_F(SelectKernelTest, AutoNeverGoesBelowThePrecision) {
  Add("naive", MemorySpace::kDevice);
  Add("cublas", MemorySpace::kDevice, Precision::kTf32);
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge), "naive");
  EXPECT_EQ(Select(MemorySpace::kDevice, kLarge, Precision::kTf32), "cublas");
}

}  // namespace
}  // namespace gemmd
