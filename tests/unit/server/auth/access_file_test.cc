#include "server/auth/access_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gemmd {
namespace {

using ::testing::HasSubstr;

class AccessFileTest : public testing::Test {
 protected:
  AccessFileTest() { std::filesystem::remove(path_); }

  void Write(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_ =
      testing::TempDir() + "access_" +
      testing::UnitTest::GetInstance()->current_test_info()->name();
};

bool Lists(const AccessFile& file, absl::string_view name) {
  return file.Get()->ByCertificate({&name, 1}).ok();
}

TEST_F(AccessFileTest, ReadsAnewWhenAsked) {
  Write("a info certificate\n");
  const auto file = AccessFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  const std::shared_ptr<const AccessList> before = (*file)->Get();
  Write("b info certificate\n");
  EXPECT_TRUE(Lists(**file, "a"));
  ASSERT_TRUE((*file)->Reload().ok());
  EXPECT_FALSE(Lists(**file, "a"));
  EXPECT_TRUE(Lists(**file, "b"));
  EXPECT_EQ(before->size(), 1);  // who holds the old list keeps it
}

TEST_F(AccessFileTest, KeepsItsListWhenTheNewOneIsBad) {
  Write("a info certificate\n");
  const auto file = AccessFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  Write("");
  EXPECT_THAT(std::string((*file)->Reload().message()), HasSubstr(path_));
  Write("a root certificate\n");
  EXPECT_TRUE(absl::IsInvalidArgument((*file)->Reload()));
  std::filesystem::remove(path_);
  EXPECT_THAT(std::string((*file)->Reload().message()),
              HasSubstr("No such file"));
  EXPECT_TRUE(Lists(**file, "a"));
}

TEST_F(AccessFileTest, RefusesWhatIsNoPrivateRegularFile) {
  EXPECT_THAT(std::string(AccessFile::Open(path_).status().message()),
              HasSubstr("No such file"));
  EXPECT_THAT(
      std::string(AccessFile::Open(testing::TempDir()).status().message()),
      HasSubstr("not a regular file"));
  Write("a info certificate\n");
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(std::string(AccessFile::Open(path_).status().message()),
              HasSubstr("chmod o-w"));
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(std::string(AccessFile::Open(path_).status().message()),
              HasSubstr("is over 1048576 bytes"));
}

}  // namespace
}  // namespace gemmd
