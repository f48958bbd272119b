// NumPy is the judge of what a .npy file is: what it writes is read, and what
// is written it reads, to the bit.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gemmd/npy.h"

namespace gemmd {
namespace {

constexpr char kPython[] = "/usr/bin/python3";

bool RunPython(const std::string& script, const std::string& directory) {
  const std::string path = directory + "/script.py";
  std::ofstream(path) << script;
  const std::string command = absl::StrCat(kPython, " ", path, " ", directory);
  return std::system(command.c_str()) == 0;
}

// Writes one matrix in each way that NumPy has.
constexpr char kWrite[] = R"(
import sys, os, numpy as np
os.chdir(sys.argv[1])
a = np.random.default_rng().standard_normal((5, 7)).astype('<f4')
a[0, 0], a[0, 1], a[0, 2] = np.nan, np.inf, -0.0
a.tofile('expected.bin')
for version in (1, 2, 3):
    for order in 'CF':
        for descr in ('<f4', '>f4'):
            with open(f'v{version}{order}{"le" if descr[0] == "<" else "be"}.npy', 'wb') as f:
                np.lib.format.write_array(
                    f, np.array(a, dtype=descr, order=order),
                    version=(version, 0))
)";

// Holds what came back against what went out.
constexpr char kCompare[] = R"(
import sys, os, glob, numpy as np
os.chdir(sys.argv[1])
expected = np.fromfile('expected.bin', '<u4').reshape(5, 7)
files = glob.glob('*.out')
assert len(files) == 12, files
for name in files:
    got = np.load(name)
    assert got.dtype == np.float32, (name, got.dtype)
    assert got.flags['C_CONTIGUOUS'], name
    if 'F' in name:
        got = np.ascontiguousarray(got.T)
    assert np.array_equal(got.view('<u4'), expected), name
)";

TEST(NpyNumpyTest, BothReadWhatTheOtherWrites) {
  if (std::system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
    GTEST_SKIP() << "no NumPy for " << kPython
                 << " (Debian: apt-get install python3-numpy)";
  }
  char name[] = "/tmp/gemmd_numpy_XXXXXX";
  const std::string directory = mkdtemp(name);
  ASSERT_TRUE(RunPython(kWrite, directory));
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".npy") continue;
    absl::StatusOr<NpyMatrix> matrix = ReadNpy(entry.path());
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_EQ(matrix->rows(), 5);
    EXPECT_EQ(matrix->cols(), 7);
    ASSERT_TRUE(
        WriteNpy(entry.path().string() + ".out", matrix->stored.view()).ok());
    ++files;
  }
  EXPECT_EQ(files, 12);
  EXPECT_TRUE(RunPython(kCompare, directory));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace gemmd
