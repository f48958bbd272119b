#include "server/execute/device_choice.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace gemmd {

absl::StatusOr<std::vector<int>> DevicesThatAnswer(
    const std::vector<int>& ordinals, bool named,
    const std::function<absl::Status(int)>& probe,
    const std::function<void(absl::string_view)>& warn) {
  std::vector<int> sound;
  std::string reasons;
  for (const int ordinal : ordinals) {
    const absl::Status status = probe(ordinal);
    if (status.ok()) {
      sound.push_back(ordinal);
      continue;
    }
    absl::StrAppend(&reasons, reasons.empty() ? "" : "; ", "CUDA device ",
                    ordinal, " does not answer: ", status.message());
    if (named) break;
  }
  if (sound.empty() || (named && !reasons.empty())) {
    return absl::FailedPreconditionError(reasons);
  }
  if (!reasons.empty() && warn) warn(absl::StrCat("left out: ", reasons));
  return sound;
}

}  // namespace gemmd
