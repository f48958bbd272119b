// What GetServerInfo answers.

#pragma once

#include "gemmd/v1/server_info.pb.h"
#include "server/rpc/service.h"

namespace gemmd {

// Devices, kernels and limits as they are for the life of the server. A kernel
// of the other memory space is listed as unavailable, since no request can have
// it here.
v1::GetServerInfoResponse DescribeServer(const RpcOptions& options,
                                         const RpcDependencies& dependencies);

}  // namespace gemmd
