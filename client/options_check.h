// Whether a client can be made of these options.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gemmd/client.h"

namespace gemmd::client {

// INVALID_ARGUMENT for an address or an option that cannot be, alone or with
// the others, and for a file that is not as it should be.
absl::Status CheckOptions(const ClientOptions& options);

// What is sent there does not leave this host.
bool IsLocal(absl::string_view address);

}  // namespace gemmd::client
