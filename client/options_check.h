// Whether a client can be made of these options.

#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gemmd/client.h"

namespace gemmd::client {

// INVALID_ARGUMENT for an address or an option that cannot be, alone or with
// the others, and for a file that is not as it should be.
absl::Status CheckOptions(const ClientOptions& options);

// What is sent to this address, in any form that CheckOptions takes, does not
// leave this host: all of a list of addresses are this host's, and no DNS
// server is asked for them.
bool IsLocal(absl::string_view address);

}  // namespace gemmd::client
