#include "server/execute/memory_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

  std::optional<size_t> Limit() {
    return ContainerMemoryLimit(root_, root_ / "membership");
  }

  const std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / "gemmd_memory_limit_test";
};

TEST_F(ContainerMemoryLimitTest, IsNoneWhereThereAreNoFiles) {
  EXPECT_FALSE(Limit().has_value());
}

TEST_F(ContainerMemoryLimitTest, ReadsVersionTwo) {
  Write("memory.max", "1073741824");
  EXPECT_EQ(Limit(), size_t{1} << 30);
  Write("memory.max", "max");
  EXPECT_FALSE(Limit().has_value());
}

TEST_F(ContainerMemoryLimitTest, ReadsVersionOne) {
  Write("memory/memory.limit_in_bytes", "536870912");
  EXPECT_EQ(Limit(), size_t{512} << 20);
  Write("memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_FALSE(Limit().has_value());
}

TEST_F(ContainerMemoryLimitTest, IsTheLeastOfItsGroupAndThoseAround) {
  Write("membership", "0::/system.slice/gemmd.service");
  Write("system.slice/gemmd.service/memory.max", "3000");
  EXPECT_EQ(Limit(), 3000u);
  Write("system.slice/memory.max", "2000");
  EXPECT_EQ(Limit(), 2000u);
  Write("memory.max", "max");
  EXPECT_EQ(Limit(), 2000u);
  Write("other/memory.max", "1");
  EXPECT_EQ(Limit(), 2000u) << "of a group it is not in";
}

TEST_F(ContainerMemoryLimitTest, FindsItsGroupOfVersionOne) {
  Write("membership", "5:cpu:/elsewhere\n4:memory:/docker/abc");
  Write("memory/docker/abc/memory.limit_in_bytes", "4096");
  Write("memory/elsewhere/memory.limit_in_bytes", "1");
  EXPECT_EQ(Limit(), 4096u);
}

TEST(MemoryLimitTest, IsNeverMoreThanTheMachineHas) {
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  EXPECT_GT(MemoryLimit(), 0u);
  EXPECT_LE(MemoryLimit(), machine);
}

TEST(StagingBytesWithinTest, LeavesHalfOfTheMemoryToTheRest) {
  EXPECT_EQ(StagingBytesWithin(100, 1000), 100u);
  EXPECT_EQ(StagingBytesWithin(100, 120), 60u);
}

TEST(ResidentBytesWithinTest, FitsBesideStagingAndMessages) {
  const size_t limit = size_t{2} << 30;
  EXPECT_LT(ResidentBytesWithin(limit) + StagingBytesWithin(limit, limit) +
                ReceiveBytesWithin(limit),
            limit);
}

TEST(ReceiveBytesWithinTest, IsAtMostAQuarterOfTheContainer) {
  EXPECT_EQ(ReceiveBytesWithin(std::nullopt), size_t{4} << 30);
  EXPECT_EQ(ReceiveBytesWithin(size_t{64} << 30), size_t{4} << 30);
  EXPECT_EQ(ReceiveBytesWithin(size_t{2} << 30), size_t{512} << 20);
}

}  // namespace
}  // namespace gemmd
