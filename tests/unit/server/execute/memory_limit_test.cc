#include "server/execute/memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gemmd {
namespace {

class ContainerMemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / "gemmd_memory_limit_test";
};

TEST_F(ContainerMemoryLimitTest, IsNoneWhereThereAreNoFiles) {
  EXPECT_FALSE(ContainerMemoryLimit(root_).has_value());
}

TEST_F(ContainerMemoryLimitTest, ReadsVersionTwo) {
  Write("memory.max", "1073741824");
  EXPECT_EQ(ContainerMemoryLimit(root_), size_t{1} << 30);
  Write("memory.max", "max");
  EXPECT_FALSE(ContainerMemoryLimit(root_).has_value());
}

TEST_F(ContainerMemoryLimitTest, ReadsVersionOne) {
  Write("memory/memory.limit_in_bytes", "536870912");
  EXPECT_EQ(ContainerMemoryLimit(root_), size_t{512} << 20);
  Write("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(ContainerMemoryLimit(root_).has_value());
}

TEST(StagingBytesWithinTest, LeavesHalfOfTheContainerToTheRest) {
  EXPECT_EQ(StagingBytesWithin(100, std::nullopt), 100u);
  EXPECT_EQ(StagingBytesWithin(100, 1000), 100u);
  EXPECT_EQ(StagingBytesWithin(100, 120), 60u);
}

}  // namespace
}  // namespace gemmd
