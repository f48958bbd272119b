#include "tests/bench/kernel_bench/results_file.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace gemmd {
namespace {

constexpr absl::string_view kRowStart = "    {\"commit\": ";

std::string Quote(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string ToJson(const DeviceFacts& d) {
  return absl::StrFormat(
      "{\"name\": %s, \"compute_capability\": %s, \"multiprocessors\": %d, "
      "\"driver\": %s, \"cuda\": %s, \"cublas\": %s, "
      "\"ffma_ceiling_tflops\": %.2f, \"copy_gb_per_second\": %.0f}",
      Quote(d.name), Quote(d.compute_capability), d.multiprocessors,
      Quote(d.driver), Quote(d.cuda), Quote(d.cublas), d.ffma_ceiling_tflops,
      d.copy_gb_per_second);
}

std::string ToJson(const ResultRow& r) {
  const GemmShape& s = r.bench_case.shape;
  return absl::StrFormat(
      "%s%s, \"command\": %s, \"date\": %s, \"kernel\": %s, \"precision\": %s, "
      "\"m\": %d, \"n\": %d, \"k\": %d, \"batch\": %d, \"transpose\": %s, "
      "\"alignment\": %d, \"us_min\": %.3f, \"us_median\": %.3f, "
      "\"us_p95\": %.3f, \"tflops\": %.3f, \"fraction_of_ceiling\": %.4f, "
      "\"ratio_to_cublas\": %.4f, \"relative_error\": %.3e, \"timing\": %s, "
      "\"sm_clock_mhz\": %.0f}",
      kRowStart, Quote(r.commit), Quote(r.command), Quote(r.date),
      Quote(r.kernel), Quote(r.precision), s.m, s.n, s.k, r.bench_case.batch,
      Quote(TransposeName(s)), AlignmentBytes(s), r.timing.us_min,
      r.timing.us_median, r.timing.us_p95, r.tflops(), r.fraction_of_ceiling,
      r.ratio_to_cublas, r.relative_error, Quote(r.timing_method),
      r.sm_clock_mhz);
}

// What a row measures: its text from the kernel to the times.
absl::string_view KeyOf(absl::string_view row) {
  const size_t from = row.find("\"kernel\": ");
  const size_t to = row.find("\"us_min\": ");
  if (from == row.npos || to == row.npos) return "";
  return row.substr(from, to - from);
}

// The rows of a file that MergeResults wrote, which has one a line.
absl::StatusOr<std::vector<std::string>> ReadRows(const std::string& path) {
  std::vector<std::string> rows;
  if (!std::filesystem::exists(path)) return rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "    ")) continue;
    absl::string_view row = absl::StripSuffix(line, ",");
    if (!absl::StartsWith(row, kRowStart) || KeyOf(row).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " was not written by kernel_bench; this is no row: ", row));
    }
    rows.emplace_back(row);
  }
  return rows;
}

}  // namespace

absl::Status MergeResults(const std::string& path, const DeviceFacts& device,
                          const std::vector<ResultRow>& rows) {
  auto lines = ReadRows(path);
  if (!lines.ok()) return lines.status();
  for (const ResultRow& row : rows) {
    const std::string text = ToJson(row);
    bool replaced = false;
    for (std::string& line : *lines) {
      if (KeyOf(line) != KeyOf(text)) continue;
      line = text;
      replaced = true;
    }
    if (!replaced) lines->push_back(text);
  }
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished);
  file << "{\n  \"device\": " << ToJson(device) << ",\n  \"results\": [\n";
  for (size_t i = 0; i < lines->size(); ++i) {
    file << (*lines)[i] << (i + 1 < lines->size() ? ",\n" : "\n");
  }
  file << "  ]\n}\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (!file || error) {
    return absl::InternalError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace gemmd
