// Whether a client can be made of these options.

#pragma once

#include "absl/status/status.h"
#include "gemmd/client.h"

namespace gemmd::client {

// INVALID_ARGUMENT for an address or an option that cannot be, alone or with
// the others, and for a file that is not as it should be.
absl::Status CheckOptions(const ClientOptions& options);

}  // namespace gemmd::client
