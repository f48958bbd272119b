#include "server/execute/device_choice.h"

#include <optional>
#include <string>
#include <utility>

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
                    ordinal, " cannot be used: ", status.message());
    if (named) break;
  }
  if (sound.empty() || (named && !reasons.empty())) {
    return absl::FailedPreconditionError(reasons);
  }
  if (!reasons.empty() && warn) warn(absl::StrCat("left out: ", reasons));
  return sound;
}

std::function<absl::Status(int)> OfOneModel(
    std::function<absl::Status(int)> probe,
    std::function<std::string(int)> model) {
  return [probe = std::move(probe), model = std::move(model),
          first = std::optional<int>(),
          wanted = std::string()](int ordinal) mutable -> absl::Status {
    if (absl::Status status = probe(ordinal); !status.ok()) return status;
    std::string got = model(ordinal);
    if (!first) {
      first = ordinal;
      wanted = std::move(got);
    } else if (got != wanted) {
      return absl::FailedPreconditionError(absl::StrCat(
          "it is of another model (", got, ") than CUDA device ", *first, " (",
          wanted, "); a server is for one: --devices names which"));
    }
    return absl::OkStatus();
  };
}

}  // namespace gemmd
