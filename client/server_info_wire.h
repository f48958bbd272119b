// Messages of small answers as the library's own types.

#pragma once

#include "gemmd/server_info.h"
#include "gemmd/v1/server_info.pb.h"

namespace gemmd::client {

ServerInfo FromProto(const v1::GetServerInfoResponse& from);

// An unknown one, of a newer server, is read as FP32, the strictest.
SgemmCall::Precision PrecisionFromProto(v1::Precision from);

}  // namespace gemmd::client
