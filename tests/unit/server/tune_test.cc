#include "server/tune.h"

#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace gemmd {
namespace {

using testing::HasSubstr;

TEST(TuneTest, SaysWhichFlagsItNeeds) {
  std::ostringstream progress;
  EXPECT_THAT(RunTune({.tune = true}, progress).message(),
              HasSubstr("--selection-cache PATH"));
  const absl::Status status = RunTune(
      {.backend = "cpu", .selection_cache = "x", .tune = true}, progress);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--backend is cpu"));
  EXPECT_EQ(progress.str(), "");
}

// It takes minutes, which would be lost.
TEST(TuneTest, APlaceThatCannotBeWrittenIsRefusedBeforeAnythingIsMeasured) {
  std::ostringstream progress;
  for (const std::string& path :
       {testing::TempDir() + "tune_test_none/x", testing::TempDir()}) {
    const absl::Status status =
        RunTune({.selection_cache = path, .tune = true}, progress);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("--selection-cache " + path));
  }
  EXPECT_EQ(progress.str(), "");
}

TEST(TuneTest, ACacheThatCannotBeUsedChangesNothing) {
  const std::string path = testing::TempDir() + "tune_test_selection.txt";
  std::ofstream(path) << "no table\n";
  KernelRegistry registry((std::vector<KernelEntry>()));
  for (const std::string& cache : {std::string(), path, path + ".none"}) {
    UseSelectionCache({.selection_cache = cache}, &registry);
    EXPECT_EQ(registry.table(), nullptr) << cache;
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace gemmd
