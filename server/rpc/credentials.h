// What a TCP port speaks: plaintext, or TLS whose files are followed.

#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/auth/tls_files.h"

namespace gemmd {

// Plaintext where `files` are none; else TLS 1.2 and later, with a client
// certificate required and verified when files.client_ca is there. The files
// are looked at every two seconds, and new connections get what is there then;
// connections that exist stay. A certificate and its key change together where
// both lie in a folder that is reached by a link which is swapped (as
// Kubernetes does); while they do not fit, new connections fail.
// INVALID_ARGUMENT as CheckTlsFiles.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const TlsFiles& files);

}  // namespace gemmd
