// The parts of kernel_bench that need no device: how a case is written, and how
// rows come into the results file.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/bench/kernel_bench/bench_case.h"
#include "tests/bench/kernel_bench/results_file.h"

namespace gemmd {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(BenchCaseTest, ReadsWhatItWrites) {
  for (const BenchCase& c : DefaultBenchCases()) {
    const auto read = ParseBenchCase(ToString(c));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->shape, c.shape);
    EXPECT_EQ(read->batch, c.batch);
  }
}

TEST(BenchCaseTest, RefusesOtherText) {
  for (const char* text :
       {"", "1x2", "1x2x3x4", "0x1x1", "-1x1x1", "axbxc", "1x2x3:", "1x2x3:XN",
        "1x2x3:NNN", "1x2x3*0", "1x2x3*", "1x2x3*2*2", "1x2x3:NN:NN"}) {
    EXPECT_FALSE(ParseBenchCase(text).ok()) << text;
  }
}

TEST(BenchCaseTest, AlignmentIsThatOfTheWorstRow) {
  EXPECT_EQ(AlignmentBytes({128, 128, 1024}), 256);
  EXPECT_EQ(AlignmentBytes({1000, 1000, 1000}), 32);
  EXPECT_EQ(AlignmentBytes({4097, 4095, 1023}), 4);
  EXPECT_EQ(AlignmentBytes({4, 64, 3, true, true}), 4);
}

class ResultsFileTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  static ResultRow Row(const std::string& kernel, double us_median) {
    ResultRow row;
    row.kernel = kernel;
    row.precision = "PRECISION_FP32";
    row.bench_case = {{64, 32, 16}, 1};
    row.timing = {us_median, us_median, us_median};
    return row;
  }
  std::string Read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  const std::string path_ =
      testing::TempDir() + "kernel_bench_test_results.json";
};

TEST_F(ResultsFileTest, ARowTakesThePlaceOfTheSameMeasurement) {
  ASSERT_TRUE(MergeResults(path_, {}, {Row("one", 1), Row("two", 2)}).ok());
  ASSERT_TRUE(MergeResults(path_, {}, {Row("one", 3), Row("new", 4)}).ok());
  const std::string text = Read();
  EXPECT_THAT(text, HasSubstr("\"us_median\": 2.000"));
  EXPECT_THAT(text, HasSubstr("\"us_median\": 3.000"));
  EXPECT_THAT(text, HasSubstr("\"us_median\": 4.000"));
  EXPECT_THAT(text, Not(HasSubstr("\"us_median\": 1.000")));
}

TEST_F(ResultsFileTest, AFileOfAnotherFormIsLeftAlone) {
  const std::string other = "{\n    \"mine\": 1\n}\n";
  std::ofstream(path_) << other;
  const absl::Status status = MergeResults(path_, {}, {Row("one", 1)});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(), other);
}

TEST_F(ResultsFileTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(MergeResults("/nowhere/at/all.json", {}, {Row("one", 1)}).ok());
}

}  // namespace
}  // namespace gemmd
