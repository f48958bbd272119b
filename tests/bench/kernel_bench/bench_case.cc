#include "tests/bench/kernel_bench/bench_case.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd {

std::string TransposeName(const GemmShape& shape) {
  return absl::StrCat(shape.transpose_a ? "T" : "N",
                      shape.transpose_b ? "T" : "N");
}

std::string ToString(const BenchCase& c) {
  std::string text = absl::StrCat(c.shape.m, "x", c.shape.n, "x", c.shape.k);
  const std::string transpose = TransposeName(c.shape);
  if (transpose != "NN") absl::StrAppend(&text, ":", transpose);
  if (c.batch != 1) absl::StrAppend(&text, "*", c.batch);
  return text;
}

absl::StatusOr<BenchCase> ParseBenchCase(absl::string_view text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("a shape looks like 1024x512x256, 1024x512x256:TN or "
                   "64x64x64*1024; got '",
                   text, "'"));
  BenchCase c;
  const std::vector<absl::string_view> by_batch = absl::StrSplit(text, '*');
  const std::vector<absl::string_view> by_transpose =
      absl::StrSplit(by_batch[0], ':');
  const std::vector<absl::string_view> sizes =
      absl::StrSplit(by_transpose[0], 'x');
  if (by_batch.size() > 2 || by_transpose.size() > 2 || sizes.size() != 3 ||
      !absl::SimpleAtoi(sizes[0], &c.shape.m) ||
      !absl::SimpleAtoi(sizes[1], &c.shape.n) ||
      !absl::SimpleAtoi(sizes[2], &c.shape.k) ||
      std::min({c.shape.m, c.shape.n, c.shape.k}) < 1) {
    return error;
  }
  if (by_batch.size() == 2 &&
      (!absl::SimpleAtoi(by_batch[1], &c.batch) || c.batch < 1)) {
    return error;
  }
  if (by_transpose.size() == 2) {
    const absl::string_view name = by_transpose[1];
    c.shape.transpose_a = absl::StartsWith(name, "T");
    c.shape.transpose_b = absl::EndsWith(name, "T");
    if (TransposeName(c.shape) != name) return error;
  }
  return c;
}

std::vector<BenchCase> DefaultBenchCases() {
  std::vector<BenchCase> cases;
  const auto add = [&](int64_t m, int64_t n, int64_t k, bool ta = false,
                       bool tb = false, int batch = 1) {
    cases.push_back({{m, n, k, ta, tb}, batch});
  };
  for (const int64_t n : {128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
                          4096, 6144, 8192, 12288, 16384}) {
    add(n, n, 1024);
  }
  for (const int64_t n : {512, 2048, 4096, 8192, 16384}) add(n, n, n);
  add(65536, 256, 1024);                                             // tall
  add(256, 65536, 1024);                                             // wide
  add(256, 256, 65536);                                              // deep
  for (const int64_t rows : {1, 8, 32, 128}) add(rows, 4096, 4096);  // skinny
  add(1000, 1000, 1000);  // of no tile's size
  add(4097, 4095, 1023);
  add(127, 8191, 513);
  for (const auto& [ta, tb] : {std::pair(false, true), std::pair(true, false),
                               std::pair(true, true)}) {
    add(1000, 1000, 1000, ta, tb);
    add(4096, 4096, 1024, ta, tb);
    add(4097, 4095, 1023, ta, tb);
  }
  add(64, 64, 64);
  add(128, 128, 128);
  add(64, 64, 64, false, false, 1024);
  add(128, 128, 128, false, false, 512);
  add(100, 100, 100, false, false, 512);
  return cases;
}

int AlignmentBytes(const GemmShape& shape) {
  int64_t bytes = 256;
  for (const int64_t row : {StoredColsA(shape), StoredColsB(shape), shape.n}) {
    const int64_t row_bytes = row * static_cast<int64_t>(sizeof(float));
    bytes = std::min(bytes, row_bytes & -row_bytes);
  }
  return static_cast<int>(bytes);
}

}  // namespace gemmd
