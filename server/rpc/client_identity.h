// Who is asking.

#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/statusor.h"

namespace gemmd {

// The value of the metadata `gemmd-client`: 32 hex digits, in lower case here;
// "" (the shared anonymous client) where there is none.
//
// Errors: INVALID_ARGUMENT for any other value, or several.
absl::StatusOr<std::string> ClientIdentity(const grpc::ServerContext& context);

// What the log calls a client. Whoever knows the value above can use its
// client's matrices, so it is a digest of that, "sha256:5e884898"; a name, of a
// token or a certificate, is itself.
std::string NameInLog(const std::string& client);

// The call came over the unix socket, and so from this host.
bool IsLocal(const grpc::ServerContext& context);

}  // namespace gemmd
