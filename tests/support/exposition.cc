#include "tests/support/exposition.h"

#include <cmath>
#include <limits>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd::testing {
namespace {

bool LegalName(absl::string_view name) {
  if (name.empty() || absl::ascii_isdigit(name[0])) return false;
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != ':') return false;
  }
  return true;
}

// A histogram's series on the way through the text.
struct Buckets {
  double last_bound = -std::numeric_limits<double>::infinity();
  double last_count = 0;
  bool ended = false;  // +Inf was there
  bool counted = false;
  bool summed = false;
};

class Parser {
 public:
  Exposition Parse(absl::string_view text) {
    if (!text.empty() && text.back() != '\n') Problem("no newline at the end");
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      line_ = line;
      if (line.empty()) continue;
      if (line[0] == '#') {
        Comment(line);
      } else {
        Sample(line);
      }
    }
    for (const auto& [series, buckets] : histograms_) {
      if (!buckets.ended || !buckets.counted || !buckets.summed) {
        Problem(absl::StrCat("histogram ", series, " is not complete"));
      }
    }
    return std::move(out_);
  }

 private:
  void Problem(absl::string_view what) {
    out_.problems.push_back(absl::StrCat(what, ": ", line_));
  }

  void Comment(absl::string_view line) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (words.size() < 4 || (words[1] != "HELP" && words[1] != "TYPE")) {
      return Problem("neither HELP nor TYPE");
    }
    auto& table = words[1] == "HELP" ? out_.help : out_.types;
    if (!table.emplace(words[2], words[3]).second) Problem("given twice");
    if (words[1] == "TYPE" && words[3] == "counter" &&
        !absl::EndsWith(words[2], "_total")) {
      Problem("a counter that does not end in _total");
    }
  }

  void Sample(absl::string_view line) {
    const size_t space = line.rfind(' ');
    double value;
    if (space == absl::string_view::npos ||
        !absl::SimpleAtod(line.substr(space + 1), &value)) {
      return Problem("no number");
    }
    const std::string series(line.substr(0, space));
    if (!out_.samples.emplace(series, value).second) Problem("twice");
    const std::string name = series.substr(0, series.find('{'));
    if (!LegalName(name)) Problem("illegal name");
    absl::string_view family = name;
    for (const char* suffix : {"_bucket", "_sum", "_count"}) {
      absl::string_view base = name;
      if (absl::ConsumeSuffix(&base, suffix) &&
          out_.types.count(std::string(base)) != 0) {
        family = base;
      }
    }
    const std::string key(family);
    if (out_.types.count(key) == 0) return Problem("no TYPE above");
    if (out_.help.count(key) == 0) Problem("no HELP above");
    if (out_.types[key] == "histogram") {
      Histogram(key, name.substr(key.size()), series, value);
    } else if (std::isnan(value) ||
               (out_.types[key] == "counter" && value < 0)) {
      Problem("not a possible value");
    }
  }

  void Histogram(const std::string& family, const std::string& suffix,
                 const std::string& series, double value) {
    // The series without its bound: family + labels.
    std::string labels =
        series.substr(series.find('{') == std::string::npos ? series.size()
                                                            : series.find('{'));
    double bound = 0;
    if (suffix == "_bucket") {
      const size_t le = labels.find("le=\"");
      if (le == std::string::npos) return Problem("a bucket without le");
      const size_t end = labels.find('"', le + 4);
      if (!absl::SimpleAtod(labels.substr(le + 4, end - le - 4), &bound)) {
        return Problem("le is not a number");
      }
      labels.erase(le, end + 1 - le);
      absl::string_view rest = labels;
      labels = absl::StartsWith(rest, "{}") ? "" : labels;
      if (absl::EndsWith(labels, ",}")) labels.erase(labels.size() - 2, 1);
    }
    Buckets& buckets = histograms_[family + labels];
    if (suffix == "_sum") {
      buckets.summed = true;
    } else if (suffix == "_count") {
      buckets.counted = true;
      count_[family + labels] = value;
    } else {
      if (bound <= buckets.last_bound) Problem("bounds do not grow");
      if (value < buckets.last_count) Problem("counts are not cumulative");
      buckets.last_bound = bound;
      buckets.last_count = value;
      buckets.ended = std::isinf(bound);
    }
    if (buckets.ended && buckets.counted &&
        buckets.last_count != count_[family + labels]) {
      Problem("+Inf is not _count");
    }
  }

  Exposition out_;
  absl::string_view line_;
  std::map<std::string, Buckets> histograms_;
  std::map<std::string, double> count_;
};

}  // namespace

double Exposition::Value(const std::string& series) const {
  const auto found = samples.find(series);
  return found == samples.end() ? std::nan("") : found->second;
}

double Exposition::Sum(const std::string& name, absl::string_view part) const {
  double sum = 0;
  for (const auto& [series, value] : samples) {
    if (series.substr(0, series.find('{')) == name &&
        absl::StrContains(series, part)) {
      sum += value;
    }
  }
  return sum;
}

Exposition ParseExposition(absl::string_view text) {
  return Parser().Parse(text);
}

}  // namespace gemmd::testing
