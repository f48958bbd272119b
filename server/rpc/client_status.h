// What a client is told of an error.

#pragma once

#include "absl/status/status.h"

namespace gemmd {

// `status` itself, but for an INTERNAL or UNKNOWN without details: its message
// was meant for the log and may name internals, so another takes its place.
absl::Status ForClient(const absl::Status& status);

}  // namespace gemmd
