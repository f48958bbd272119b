#include "server/misspelt_flag.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace gemmd {
namespace {

constexpr int kMostWrong = 2;

// Letters to insert, remove or change to make one text of the other.
int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = std::exchange(row[0], static_cast<int>(i) + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const int changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

const OptionFlag* MisspeltFlag(absl::string_view variable) {
  if (!absl::StartsWith(variable, "GEMMD_")) return nullptr;
  const OptionFlag* nearest = nullptr;
  int fewest = kMostWrong + 1;
  for (const OptionFlag& flag : OptionFlags()) {
    const int wrong = EditDistance(variable, flag.environment_name());
    if (wrong == 0) return nullptr;
    if (wrong < fewest) {
      fewest = wrong;
      nearest = &flag;
    }
  }
  return nearest;
}

}  // namespace gemmd
