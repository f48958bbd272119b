// Files for the tests of .npy.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace gemmd {

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
    std::string path = Path("a.npy");
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
inline std::string File(int major, const std::string& dictionary,
                        const std::string& numbers) {
  std::string file("\x93NUMPY", 6);
  file += static_cast<char>(major);
  file += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  }
  return file + dictionary + numbers;
}

inline std::string Dictionary(const std::string& descr,
                              const std::string& fortran,
                              const std::string& shape) {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran,
                      ", 'shape': ", shape, ", }\n");
}

inline std::string Numbers(std::initializer_list<float> values) {
  std::string bytes;
  for (float value : values) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

inline constexpr char kSix[] = "(2, 3)";
inline std::string SixNumbers() { return Numbers({1, 2, 3, 4, 5, 6}); }

}  // namespace gemmd
