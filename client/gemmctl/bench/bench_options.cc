#include "client/gemmctl/bench/bench_options.h"

#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd::gemmctl {
namespace {

// More steps than anybody waits for.
constexpr size_t kMaxSteps = 1000;

absl::Status NoSteps(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text,
      "\" is no number above 0 and no range of them (8, 1:64:x2 or "
      "10:50:+20)"));
}

}  // namespace

absl::StatusOr<BenchShape> ReadShape(const std::string& text) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, 'x')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 0) sizes.resize(4);
    sizes.push_back(size);
  }
  if (sizes.size() == 1) sizes.resize(3, sizes[0]);
  if (sizes.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", text, "\" is no shape (1024, or m x n x k as 64x64x4096)"));
  }
  return BenchShape{.m = sizes[0], .n = sizes[1], .k = sizes[2]};
}

absl::StatusOr<std::vector<BenchShape>> ReadShapeFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path));
  }
  std::vector<BenchShape> shapes;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    absl::StatusOr<BenchShape> shape = ReadShape(words[0]);
    double weight = 1;
    if (!shape.ok() || words.size() > 2 ||
        (words.size() == 2 && (!absl::SimpleAtod(words[1], &weight) ||
                               !(weight > 0) || std::isinf(weight)))) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ", line ", number, ": \"", line,
                       "\" is no shape with a weight above 0 (64x64x4096 3)"));
    }
    shape->weight = weight;
    shapes.push_back(*shape);
  }
  if (shapes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has no shapes"));
  }
  return shapes;
}

absl::StatusOr<std::vector<double>> ReadSteps(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  double first = 0;
  double last = 0;
  double step = 0;
  const auto read = [](absl::string_view part, double* to) {
    return absl::SimpleAtod(part, to) && *to > 0 && std::isfinite(*to);
  };
  if (!read(parts[0], &first)) return NoSteps(text);
  if (parts.size() == 1) return std::vector<double>{first};
  if (parts.size() != 3 || !read(parts[1], &last) || last < first) {
    return NoSteps(text);
  }
  absl::string_view by = parts[2];
  const bool times = absl::ConsumePrefix(&by, "x");
  if ((!times && !absl::ConsumePrefix(&by, "+")) || !read(by, &step) ||
      (times && step <= 1)) {
    return NoSteps(text);
  }
  std::vector<double> steps;
  // A hair's breadth, so that rounding does not lose the last.
  for (double x = first; x <= last * (1 + 1e-9);
       x = times ? x * step : x + step) {
    steps.push_back(x);
    if (steps.size() > kMaxSteps) return NoSteps(text);
  }
  return steps;
}

const char* OperandModeName(OperandMode mode) {
  switch (mode) {
    case OperandMode::kInline:
      break;
    case OperandMode::kResidentB:
      return "resident-b";
    case OperandMode::kResident:
      return "resident";
    case OperandMode::kShared:
      return "shared-memory";
  }
  return "inline";
}

}  // namespace gemmd::gemmctl
