// Who calls, and what they may do.

#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/access_list.h"
#include "server/auth/roles.h"

namespace gemmd {

struct Caller {
  // The client that quotas, fairness and matrix ids go by; empty: the anonymous
  // one that all who say nothing share.
  std::string client;
  Roles roles;
};

// With `access`, the principal of the bearer token in the metadata
// `authorization`, else of the client certificate; UNAUTHENTICATED, saying how
// to authenticate, for neither or one that is not listed. Without, everybody
// may do everything: the client is the certificate's name where there is one,
// else what the metadata `gemmd-client` says (INVALID_ARGUMENT when that is
// malformed).
absl::StatusOr<Caller> IdentifyCaller(const grpc::ServerContext& context,
                                      const AccessList* access);

// OK, or PERMISSION_DENIED naming the caller, what it has and what it lacks.
absl::Status CheckRole(absl::string_view client, Roles roles, Role wanted);

}  // namespace gemmd
