#include "client/gemmctl/format.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace gemmd::gemmctl {

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  std::string number = absl::StrFormat("%.1f", value);
  return absl::StrCat(absl::StripSuffix(number, ".0"), " ", unit);
}

std::string FormatTime(absl::Duration time) {
  const double us = absl::ToDoubleMicroseconds(time);
  if (us < 1e3) return absl::StrFormat("%.1f us", us);
  if (us < 1e6) return absl::StrFormat("%.2f ms", us / 1e3);
  return absl::StrFormat("%.2f s", us / 1e6);
}

std::string FormatFlops(double flops_per_second) {
  const double giga = flops_per_second / 1e9;
  if (giga < 1000) return absl::StrFormat("%.3g GFLOP/s", giga);
  return absl::StrFormat("%.3g TFLOP/s", giga / 1000);
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? "" : "  ", row[i]);
      if (i + 1 < row.size()) line.append(widths[i] - row[i].size(), ' ');
    }
    absl::StrAppend(&table, line, "\n");
  }
  return table;
}

}  // namespace gemmd::gemmctl
