#include "gemmd/npy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/npy_header.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A directory for one test's files.
class NpyTest : public ::testing::Test {
 protected:
  NpyTest() {
    char name[] = "/tmp/gemmd_npy_XXXXXX";
    directory_ = mkdtemp(name);
  }
  ~NpyTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const {
    return directory_ + "/" + name;
  }

  std::string Write(const std::string& bytes) const {
    const std::string path = Path("a.npy");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  int FileCount() const {
    return std::distance(std::filesystem::directory_iterator(directory_), {});
  }

  std::string directory_;
};

// A file of version `major` with this dictionary and these bytes of numbers.
std::string File(int major, const std::string& dictionary,
                 const std::string& numbers) {
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(major);
  file += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  }
  return file + dictionary + numbers;
}

std::string Dictionary(const std::string& descr, const std::string& fortran,
                       const std::string& shape) {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran,
                      ", 'shape': ", shape, ", }\n");
}

std::string Numbers(std::initializer_list<float> values) {
  std::string bytes;
  for (float value : values) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

const char kSix[] = "(2, 3)";
std::string SixNumbers() { return Numbers({1, 2, 3, 4, 5, 6}); }

// The message is one line that names the file, and says these things.
void ExpectRefused(const absl::StatusOr<NpyMatrix>& result,
                   const std::string& path,
                   const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok());
  const std::string message(result.status().message());
  EXPECT_THAT(message, AllOf(StartsWith(path), Not(HasSubstr("\n"))));
  for (const std::string& word : words) {
    EXPECT_THAT(message, HasSubstr(word));
  }
}

TEST_F(NpyTest, ReadsEveryVersion) {
  for (int version : {1, 2, 3}) {
    const std::string path =
        Write(File(version, Dictionary("<f4", "False", kSix), SixNumbers()));
    absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
    ASSERT_TRUE(matrix.ok()) << version << ": " << matrix.status();
    EXPECT_EQ(matrix->rows(), 2);
    EXPECT_EQ(matrix->cols(), 3);
    EXPECT_FALSE(matrix->transposed);
    EXPECT_EQ(matrix->stored(1, 0), 4.0f);
  }
}

TEST_F(NpyTest, FortranOrderIsATransposedMatrixOfTheSameNumbers) {
  const std::string path =
      Write(File(1, Dictionary("<f4", "True", kSix), SixNumbers()));
  absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_TRUE(matrix->transposed);
  EXPECT_EQ(matrix->rows(), 2);
  EXPECT_EQ(matrix->cols(), 3);
  EXPECT_EQ(matrix->stored.rows(), 3);
  // Column by column: (0, 1) of the array is its third number.
  EXPECT_EQ(matrix->stored(1, 0), 3.0f);
}

TEST_F(NpyTest, ReadsBigEndianNumbers) {
  std::string numbers = SixNumbers();
  for (size_t i = 0; i < numbers.size(); i += 4) {
    std::reverse(numbers.begin() + i, numbers.begin() + i + 4);
  }
  const std::string path =
      Write(File(1, Dictionary(">f4", "False", kSix), numbers));
  absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->stored(1, 2), 6.0f);
}

TEST_F(NpyTest, ReadsKeysInAnyOrderAndPython2Longs) {
  const std::string path = Write(
      File(1, "{\"shape\": (2L, 3L),'fortran_order':False , \"descr\":'<f4'}",
           SixNumbers()));
  EXPECT_TRUE(ReadNpy(path).ok()) << ReadNpy(path).status();
}

TEST_F(NpyTest, ReadsMatricesWithNothingInThem) {
  for (const char* shape : {"(0, 3)", "(3, 0)", "(0, 0)"}) {
    const std::string path =
        Write(File(1, Dictionary("<f4", "False", shape), ""));
    EXPECT_TRUE(ReadNpy(path).ok()) << ReadNpy(path).status();
  }
}

TEST_F(NpyTest, MissingFile) {
  const std::string path = Path("missing.npy");
  EXPECT_TRUE(absl::IsNotFound(ReadNpy(path).status()));
  ExpectRefused(ReadNpy(path), path, {"no such file"});
}

TEST_F(NpyTest, Directory) {
  ExpectRefused(ReadNpy(directory_), directory_, {"directory"});
}

TEST_F(NpyTest, EmptyFile) {
  const std::string path = Write("");
  ExpectRefused(ReadNpy(path), path, {"empty"});
}

TEST_F(NpyTest, NotANpyFile) {
  const std::string path = Write("1.0,2.0,3.0\n4.0,5.0,6.0\n");
  ExpectRefused(ReadNpy(path), path, {"not a .npy file", "numpy.save"});
}

TEST_F(NpyTest, UnknownVersion) {
  const std::string path =
      Write(File(4, Dictionary("<f4", "False", kSix), SixNumbers()));
  ExpectRefused(ReadNpy(path), path, {"version 4"});
}

TEST_F(NpyTest, EveryTruncationSaysWhatIsThereAndWhatIsWanted) {
  const std::string whole =
      File(2, Dictionary("<f4", "False", kSix), SixNumbers());
  for (size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const std::string path = Write(whole.substr(0, bytes));
    ExpectRefused(ReadNpy(path), path, {"truncated", "bytes, wanted"});
  }
  const std::string path = Write(whole.substr(0, whole.size() - 3));
  ExpectRefused(ReadNpy(path), path, {"21 bytes, wanted 24"});
}

TEST_F(NpyTest, BytesAfterTheArray) {
  const std::string path =
      Write(File(1, Dictionary("<f4", "False", kSix), SixNumbers() + "xyz"));
  ExpectRefused(ReadNpy(path), path, {"3 bytes after", "24"});
}

TEST_F(NpyTest, AnotherTypeIsNamedWithTheWayOut) {
  const std::pair<const char*, const char*> kTypes[] = {
      {"<f8", "float64"}, {"<f2", "float16"},     {"<i4", "int32"},
      {"|u1", "uint8"},   {"<c8", "complex64"},   {"|b1", "bool"},
      {"|O", "object"},   {"<M8[ns]", "<M8[ns]"}, {"<U3", "<U3"},
  };
  for (const auto& [descr, name] : kTypes) {
    const std::string path =
        Write(File(1, Dictionary(descr, "False", kSix), SixNumbers()));
    ExpectRefused(ReadNpy(path), path,
                  {name, descr, "wanted is float32", ".astype('float32')"});
  }
}

TEST_F(NpyTest, ARecordIsNamed) {
  const std::string path =
      Write(File(1,
                 "{'descr': [('x', '<f4'), ('y', '<f4', (2,))], "
                 "'fortran_order': False, 'shape': (3,)}",
                 SixNumbers()));
  ExpectRefused(ReadNpy(path), path, {"a record", "'x'", "one field"});
}

TEST_F(NpyTest, OneDimensionSaysHowToReshape) {
  const std::string path =
      Write(File(1, Dictionary("<f4", "False", "(6,)"), SixNumbers()));
  ExpectRefused(ReadNpy(path), path,
                {"one dimension", ".reshape(1, 6)", ".reshape(6, 1)"});
}

TEST_F(NpyTest, OtherRanks) {
  for (const char* shape : {"()", "(1, 2, 3)"}) {
    const std::string path =
        Write(File(1, Dictionary("<f4", "False", shape), SixNumbers()));
    ExpectRefused(ReadNpy(path), path, {"dimensions", "wanted are two"});
  }
}

TEST_F(NpyTest, AShapeBeyondTheFileAsksForNoMemory) {
  const std::string path = Write(
      File(1, Dictionary("<f4", "False", "(1000000, 1000000)"), SixNumbers()));
  ExpectRefused(ReadNpy(path), path, {"24 bytes, wanted 4000000000000"});
}

TEST_F(NpyTest, AShapeThatOverflows) {
  for (const char* shape :
       {"(4611686018427387904, 4)", "(9223372036854775808, 0)",
        "(3037000500, 3037000500)", "(99999999999999999999, 1)"}) {
    const std::string path =
        Write(File(1, Dictionary("<f4", "False", shape), SixNumbers()));
    EXPECT_FALSE(ReadNpy(path).ok()) << shape;
  }
}

TEST_F(NpyTest, GarbageInTheHeader) {
  for (const char* dictionary :
       {"", "{", "[]", "{}", "{'descr': '<f4'}", "{'descr': }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)} x",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}",
        "{'descr: <f4}"}) {
    const std::string path = Write(File(1, dictionary, SixNumbers()));
    ExpectRefused(ReadNpy(path), path, {"header"});
  }
}

// Changes 1 to 4 bytes of `text`, to anything and to what means something.
std::string Mutate(std::string text, std::mt19937& random) {
  const std::string alphabet = "'\"{}()[],: \n<>f4TrueFalse0123456789LNUMPY";
  for (int i = 1 + random() % 4; i > 0; --i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text[at] = alphabet[random() % alphabet.size()];
        break;
      case 2:
        text.erase(at, 1 + random() % 3);
        break;
      default:
        text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    if (text.empty()) text = "x";
  }
  return text;
}

// No mutation of a good file crashes, hangs or asks for absurd memory; what is
// accepted is as large as it claims.
TEST_F(NpyTest, AcceptsOrRefusesEveryMutation) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string good =
      File(1, Dictionary("<f4", "False", kSix), SixNumbers());
  for (int round = 0; round < 300; ++round) {
    const std::string path = Write(Mutate(good, random));
    absl::StatusOr<NpyMatrix> matrix = ReadNpy(path);
    if (matrix.ok()) {
      EXPECT_THAT(matrix->rows() * matrix->cols(), AnyOf(0, 6));
    } else {
      EXPECT_THAT(std::string(matrix.status().message()),
                  AllOf(StartsWith(path), Not(HasSubstr("\n"))));
    }
  }
}

TEST_F(NpyTest, ReadsOrRefusesEveryMutatedHeader) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string good = Dictionary("<f4", "False", kSix);
  int read = 0;
  for (int round = 0; round < 100'000; ++round) {
    const std::string text = Mutate(good, random);
    absl::StatusOr<client::NpyHeader> header = client::ParseNpyDictionary(text);
    if (header.ok()) {
      ++read;
    } else {
      EXPECT_THAT(std::string(header.status().message()),
                  AllOf(HasSubstr("header"), Not(HasSubstr("\n"))))
          << text;
    }
  }
  EXPECT_GT(read, 100);  // of "(2, 3)" comes "(7, 3)", and spaces are free
}

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
  EXPECT_EQ(std::memcmp(back->stored.data(), matrix.data(), 35 * 4), 0);
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
