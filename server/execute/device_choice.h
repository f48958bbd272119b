// Which of a host's devices to compute on.

#pragma once

#include <functional>
#include <string>
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

// A probe for DevicesThatAnswer, for devices in the order in which it is asked:
// `probe`, and then the same `model` as the first that answered. The kernels'
// plans and the times that `auto` goes by are one model's.
// FAILED_PRECONDITION names both.
std::function<absl::Status(int)> OfOneModel(
    std::function<absl::Status(int)> probe,
    std::function<std::string(int)> model);

}  // namespace gemmd
