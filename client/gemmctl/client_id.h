// Who this user is to servers.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "gemmd/client.h"

namespace gemmd::gemmctl {

// A client that finds again what an earlier gemmctl left on the server: with
// options.id if there is one, else with the id that is kept in
// $XDG_STATE_HOME/gemmd/client-id (~/.local/state/...), drawn the first time
// and readable by this user alone. INVALID_ARGUMENT when that cannot be read or
// made.
absl::StatusOr<std::unique_ptr<Client>> ClientWithId(ClientOptions options);

}  // namespace gemmd::gemmctl
