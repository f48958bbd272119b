#include "kernels/selection_table.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/selection_cache.h"
#include "kernels/tuning.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

constexpr float kUnknown = std::numeric_limits<float>::infinity();

SelectionStamp Stamp() {
  return {.gpu = "NVIDIA H200",
          .driver = "580.1",
          .cuda = "13.0",
          .cublas = "13.1.0",
          .build = "0.1.0 abc"};
}

// Kernel "a" takes m + 10 n + 100 k, twice that where transposed or unaligned;
// "b" is unknown at the largest m, and takes 7 else.
SelectionTable Table() {
  const SelectionGrid grid = {.m = {1, 16, 64}, .n = {16, 64}, .k = {16, 256}};
  std::vector<float> us;
  for (int c = 0; c < SelectionClass::kCount; ++c) {
    for (const int64_t m : grid.m) {
      for (const int64_t n : grid.n) {
        for (const int64_t k : grid.k) {
          us.push_back(
              static_cast<float>((m + 10 * n + 100 * k) * (c == 0 ? 1 : 2)));
          us.push_back(m == 64 ? kUnknown : 7.0f);
        }
      }
    }
  }
  return {Stamp(), grid, {"a", "b"}, us};
}

std::vector<double> Predict(const SelectionTable& table,
                            const SgemmArgs& args) {
  std::vector<double> us(table.kernels().size());
  table.Predict(args, us);
  return us;
}
std::vector<double> Predict(int64_t m, int64_t n, int64_t k) {
  return Predict(Table(), ArgsOf({}, m, n, k));
}

TEST(SelectionTableTest, ReadsWhatItWrites) {
  const std::string text = Table().ToText();
  const auto read = SelectionTable::Parse(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->stamp(), Stamp());
  EXPECT_EQ(read->kernels(), Table().kernels());
  EXPECT_EQ(read->ToText(), text);
  const double exact = Predict(10, 40, 99)[0];
  EXPECT_NEAR(Predict(*read, ArgsOf({}, 10, 40, 99))[0], exact, 1e-3 * exact);
}

TEST(SelectionTableTest, RefusesMalformedText) {
  const std::string text = Table().ToText();
  const auto error = [&](const char* from, const char* to) {
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(changed, text) << from;
    const auto table = SelectionTable::Parse(changed);
    return table.ok() ? "read: " + changed : table.status().ToString();
  };
  EXPECT_THAT(error("table 1", "table 2"), HasSubstr("line 1: wanted"));
  EXPECT_THAT(error("gpu: ", "gpu "), HasSubstr("line 2: wanted \"gpu: ...\""));
  EXPECT_THAT(error("build: 0.1.0 abc\n", ""), HasSubstr("line 6"));
  EXPECT_THAT(error("m: 1 16", "m: 16 1"), HasSubstr("increasing"));
  EXPECT_THAT(error("n: 16 64", "n: 16"), HasSubstr("two sizes"));
  EXPECT_THAT(error("k: 16 256", "k: 16 x"), HasSubstr("increasing"));
  EXPECT_THAT(error("kernels: a b", "kernels: a"), HasSubstr("2 times"));
  EXPECT_THAT(error("NN aligned 1 64: ", "NN aligned 1 65: "),
              HasSubstr("wanted \"NN aligned 1 64: ...\""));
  EXPECT_THAT(error(" 7", " -7"), HasSubstr("above 0"));
  EXPECT_THAT(error(" 7", " nan"), HasSubstr("above 0"));
  EXPECT_THAT(error("TT unaligned 64 64: ", ""), HasSubstr("TT unaligned"));
  EXPECT_FALSE(SelectionTable::Parse("").ok());
  EXPECT_FALSE(SelectionTable::Parse(text + "more\n").ok());
  EXPECT_FALSE(SelectionTable::Parse(text.substr(0, text.size() / 2)).ok());
}

TEST(SelectionTableTest, GivesWhatWasMeasured) {
  EXPECT_EQ(Predict(16, 64, 256)[0], 16 + 640 + 25600);
  EXPECT_EQ(Predict(1, 16, 16)[1], 7);
}

TEST(SelectionTableTest, InterpolatesBetweenAndContinuesBeyond) {
  EXPECT_NEAR(Predict(10, 20, 100)[0], 10 + 200 + 10000, 0.01);
  EXPECT_NEAR(Predict(16, 64, 1000)[0], 16 + 640 + 100000, 0.1);
  // Past 64 m and n count in whole tiles of 64.
  EXPECT_NEAR(Predict(65, 100, 16)[0], 128 + 1280 + 1600, 0.01);
  // Below the smallest it stays.
  EXPECT_NEAR(Predict(1, 1, 1)[0], 1 + 160 + 1600, 0.01);
}

TEST(SelectionTableTest, KnowsNothingNextToTheUnknown) {
  EXPECT_NEAR(Predict(16, 20, 20)[1], 7, 1e-9);
  EXPECT_TRUE(std::isinf(Predict(17, 20, 20)[1]));
  EXPECT_TRUE(std::isinf(Predict(500, 20, 20)[1]));
}

TEST(SelectionTableTest, TellsTransposesAndAlignmentApart) {
  const double plain = Predict(16, 64, 256)[0];
  for (int c = 1; c < SelectionClass::kCount; ++c) {
    const SgemmArgs args = ArgsOf(SelectionClass::OfIndex(c), 16, 64, 256);
    EXPECT_EQ(ClassOf(args).index(), c);
    EXPECT_EQ(Predict(Table(), args)[0], 2 * plain) << c;
  }
  // Any one that is not aligned.
  SgemmArgs args = ArgsOf({}, 16, 64, 256);
  args.c = reinterpret_cast<float*>(4);
  EXPECT_FALSE(ClassOf(args).aligned);
  args = ArgsOf({}, 16, 64, 256);
  args.ldb = 65;
  EXPECT_FALSE(ClassOf(args).aligned);
}

TEST(ShippedTableTest, IsThereForTheH200Alone) {
  EXPECT_EQ(ShippedTable("Some Other GPU"), nullptr);
  const auto table = ShippedTable("NVIDIA H200");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->stamp().gpu, "NVIDIA H200");
  EXPECT_GE(table->kernels().size(), 2u);
}

class SelectionCacheTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = testing::TempDir() + "selection_cache_test";
  const std::string path_ = folder_ + "/selection.txt";
};

TEST_F(SelectionCacheTest, ReadsWhatWasWrittenAndLeavesNothingElse) {
  std::ofstream(path_) << "an older one";
  ASSERT_TRUE(WriteSelectionCache(path_, Table()).ok());
  const auto read = ReadSelectionCache(path_, Stamp());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), Table().ToText());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path(), path_);
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(SelectionCacheTest, IsRefusedWhereAStampDiffers) {
  ASSERT_TRUE(WriteSelectionCache(path_, Table()).ok());
  std::string SelectionStamp::*const fields[] = {
      &SelectionStamp::gpu, &SelectionStamp::driver, &SelectionStamp::cuda,
      &SelectionStamp::cublas, &SelectionStamp::build};
  for (const auto field : fields) {
    SelectionStamp stamp = Stamp();
    stamp.*field = "another";
    const auto read = ReadSelectionCache(path_, stamp);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(read.status().message(),
                testing::AllOf(HasSubstr(path_), HasSubstr(Stamp().*field),
                               HasSubstr("another"), HasSubstr("--tune")));
  }
}

TEST_F(SelectionCacheTest, SaysWhatIsWrongWithTheFile) {
  EXPECT_EQ(ReadSelectionCache(path_, Stamp()).status().code(),
            absl::StatusCode::kNotFound);
  std::ofstream(path_) << "gemmd selection table 1\nnothing\n";
  EXPECT_THAT(ReadSelectionCache(path_, Stamp()).status().message(),
              testing::AllOf(HasSubstr(path_), HasSubstr("line 2")));
}

TEST_F(SelectionCacheTest, AFileThatCannotBeWrittenIsAnError) {
  const absl::Status status =
      WriteSelectionCache(folder_ + "/none/selection.txt", Table());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("/none/selection.txt"));
  // A folder is in the way: what was written beside it is removed.
  std::filesystem::create_directories(path_ + "/folder");
  EXPECT_FALSE(WriteSelectionCache(path_, Table()).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace gemmd
