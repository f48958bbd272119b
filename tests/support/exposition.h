// Reads the Prometheus text exposition, strictly, for tests of /metrics.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace gemmd::testing {

struct Exposition {
  // As written: `name{label="value",...}`, in the order of the text.
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;  // by family
  std::map<std::string, std::string> help;   // by family
  // What breaks the format or its conventions; empty for a good text.
  std::vector<std::string> problems;

  // The value of a series; NaN where there is none.
  double Value(const std::string& series) const;
  // The sum over the series of a name whose text holds `part`.
  double Sum(const std::string& name, absl::string_view part = "") const;
};

// Checks: every sample belongs to a family with HELP and TYPE above it, is
// there once and has a number; names are legal; counters end in _total;
// histograms have cumulative buckets, +Inf equal to _count, and a _sum.
Exposition ParseExposition(absl::string_view text);

}  // namespace gemmd::testing
