// Writing .npy: whole files, or none.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <random>
#include <string>

#include "client/npy_header.h"
#include "gemmd/npy.h"
#include "tests/support/client_matrices.h"
#include "tests/unit/client/npy_files.h"

namespace gemmd {
namespace {

using ::testing::StartsWith;

TEST_F(NpyTest, WritesWhatItReads) {
  std::mt19937 random(std::random_device{}());
  Matrix matrix(7, 5);
  for (int i = 0; i < 35; ++i) {
    matrix.data()[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  const std::string path = Path("out.npy");
  ASSERT_TRUE(WriteNpy(path, matrix.view()).ok());
  absl::StatusOr<NpyMatrix> back = ReadNpy(path);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->rows(), 7);
  EXPECT_EQ(back->cols(), 5);
  EXPECT_TRUE(SameBits(back->stored.data(), matrix.data(), 35));
  EXPECT_EQ(FileCount(), 1);
}

TEST_F(NpyTest, NumbersBeginAtAMultipleOf64Bytes) {
  for (int64_t rows = 1; rows < 1'000'000'000'000; rows *= 10) {
    EXPECT_EQ(client::NpyHeaderBytes(rows, 3).size() % 64, 0u) << rows;
  }
}

TEST_F(NpyTest, WritesRowsApartAsPackedOnes) {
  std::vector<float> numbers(2 * 8, std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 3; ++i) {
    numbers[i] = 1 + i;
    numbers[8 + i] = 4 + i;
  }
  const std::string path = Path("out.npy");
  ASSERT_TRUE(WriteNpy(path, {numbers.data(), 2, 3, 8}).ok());
  EXPECT_THAT(Read(path), ::testing::EndsWith(SixNumbers()));
}

TEST_F(NpyTest, WritesMatricesWithNothingInThem) {
  const std::string path = Path("out.npy");
  for (MatrixView empty :
       {MatrixView{nullptr, 0, 3, 0}, MatrixView{nullptr, 3, 0, 8},
        MatrixView{nullptr, 0, 0, 0}}) {
    ASSERT_TRUE(WriteNpy(path, empty).ok());
    absl::StatusOr<NpyMatrix> back = ReadNpy(path);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->rows(), empty.rows);
    EXPECT_EQ(back->cols(), empty.cols);
  }
}

TEST_F(NpyTest, ReplacesAFileAndLeavesNothingBeside) {
  const Matrix matrix(1, 1);
  const std::string path = Write("old");
  ASSERT_TRUE(WriteNpy(path, matrix.view()).ok());
  EXPECT_TRUE(ReadNpy(path).ok());
  EXPECT_EQ(FileCount(), 1);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
}

TEST_F(NpyTest, ALinkAndTheModeOfTheOldFileStay) {
  const std::string real = directory_ + "/real.npy";
  const std::string link = directory_ + "/link.npy";
  std::ofstream(real) << "older";
  ASSERT_EQ(chmod(real.c_str(), 0640), 0);
  ASSERT_EQ(symlink("real.npy", link.c_str()), 0);
  const Matrix matrix(2, 3);
  ASSERT_TRUE(WriteNpy(link, matrix.view()).ok());
  struct stat info;
  ASSERT_EQ(lstat(link.c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(lstat(real.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
  EXPECT_TRUE(ReadNpy(real).ok());
}

TEST_F(NpyTest, AFailedWriteLeavesTheOldFileAndNothingBeside) {
  const Matrix matrix(1, 1);
  const std::string path = Path("no such directory/out.npy");
  const absl::Status status = WriteNpy(path, matrix.view());
  EXPECT_THAT(std::string(status.message()), StartsWith(path));
  EXPECT_EQ(FileCount(), 0);
}

TEST_F(NpyTest, WritesIntoWhatIsNoRegularFile) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int pipe = open(path.c_str(), O_RDWR);  // both ends: no call waits
  ASSERT_GE(pipe, 0);
  const Matrix matrix(1, 1);
  EXPECT_TRUE(WriteNpy(path, matrix.view()).ok());
  char bytes[200];
  EXPECT_EQ(read(pipe, bytes, sizeof bytes), 128 + 4);
  close(pipe);
  EXPECT_EQ(FileCount(), 1);
  EXPECT_FALSE(WriteNpy(directory_, matrix.view()).ok());
}

}  // namespace
}  // namespace gemmd
