// The dictionary at the head of a .npy file.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {

// Everything a file starts with:
//   "\x93NUMPY" major minor length dictionary
// where the length has 2 bytes in version 1 and 4 in versions 2 and 3, little
// endian, and the dictionary is Python's notation for
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
struct NpyHeader {
  std::string descr;  // the type: "<f4"; of a record, its Python text
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

// Bytes before the dictionary, once the first 8 of the file are known: 10 or
// 12. INVALID_ARGUMENT for what is no .npy file or of an unknown version.
inline constexpr size_t kNpyMagicBytes = 8;
absl::StatusOr<size_t> NpyPreambleBytes(absl::string_view first_bytes);

// The dictionary's length. Needs: NpyPreambleBytes() bytes.
uint32_t NpyDictionaryBytes(absl::string_view preamble);

// Reads the dictionary. INVALID_ARGUMENT with what was expected and found.
absl::StatusOr<NpyHeader> ParseNpyDictionary(absl::string_view dictionary);

// A whole version 1 preamble and dictionary for C order "<f4", padded so that
// the numbers after it begin at a multiple of 64 bytes.
std::string NpyHeaderBytes(int64_t rows, int64_t cols);

// NumPy's name of a type: "float64" for "<f8", "a record" for a structure; the
// text itself where there is no name.
std::string NpyTypeName(absl::string_view descr);

// `text` in double quotes, on one line and not too long: a file may hold
// anything.
std::string Quoted(absl::string_view text);

}  // namespace gemmd::client
