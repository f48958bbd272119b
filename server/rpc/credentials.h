// What a TCP port speaks: plaintext, or TLS whose files are followed.

#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/auth/tls_files.h"

namespace gemmd {

// Plaintext where `files` are none; else TLS 1.2 and later, with a client
// certificate required and verified when files.client_ca is there. A new
// connection gets what is in the files then (see TlsRotation); connections that
// exist stay. INVALID_ARGUMENT as ReadTlsFiles.
//
// The credentials must live as long as the server that has a port of theirs.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files);

}  // namespace gemmd
