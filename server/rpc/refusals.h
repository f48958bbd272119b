// Errors that several calls answer.

#pragma once

#include "absl/status/status.h"

namespace gemmd {

// UNAVAILABLE with RetryInfo: the server takes nothing new.
absl::Status DrainingError();

// UNIMPLEMENTED: there is no store.
absl::Status NoMatricesError();

}  // namespace gemmd
