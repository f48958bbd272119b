// Which of a host's devices to compute on.

#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

// Those of `ordinals` for which `probe` is OK. One that was not named by the
// operator (`named` is false: all there are) is left out and `warn`, if any,
// told why: seven sound devices serve better than none. One that was named must
// do.
//
// Errors: FAILED_PRECONDITION with the reasons if none is left, or of a named
// one.
absl::StatusOr<std::vector<int>> DevicesThatAnswer(
    const std::vector<int>& ordinals, bool named,
    const std::function<absl::Status(int)>& probe,
    const std::function<void(absl::string_view)>& warn);

}  // namespace gemmd
