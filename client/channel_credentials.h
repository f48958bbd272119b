// What a connection speaks: plaintext, or TLS whose files are followed.

#pragma once

#include <grpcpp/security/credentials.h>

#include <memory>

#include "gemmd/client.h"

namespace gemmd::client {

// For all channels of one client. Needs: CheckOptions(options) is OK.
std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(
    const ClientOptions& options);

}  // namespace gemmd::client
