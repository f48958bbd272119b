// What a connection speaks: plaintext, or TLS.

#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>

#include "client/tls_files.h"

namespace gemmd::client {

// TLS with these roots, or the system's where there are none, and with this
// certificate and key where there are such. Needs: what ReadTlsFiles gave.
std::shared_ptr<grpc::ChannelCredentials> NewTlsCredentials(
    const TlsContents& contents);

}  // namespace gemmd::client
