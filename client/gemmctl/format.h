// Numbers and tables for people.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace gemmd::gemmctl {

// "12.9 MiB".
std::string FormatBytes(uint64_t bytes);

// In the unit that fits: "3.2 us", "14.0 ms", "1.25 s".
std::string FormatTime(absl::Duration time);

// "1.32 TFLOP/s", or GFLOP/s below 1.
std::string FormatFlops(double flops_per_second);

// Rows of cells in columns of equal width, two spaces apart.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace gemmd::gemmctl
