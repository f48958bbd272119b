// Reading .npy: what is read, and how the rest is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gemmd/npy.h"
#include "tests/unit/client/npy_files.h"

namespace gemmd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

TEST_F(NpyTest, APipeIsNotWaitedFor) {
  const std::string path = Path("pipe.npy");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ExpectRefused(ReadNpy(path), path, {"no regular file"});
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

}  // namespace
}  // namespace gemmd
