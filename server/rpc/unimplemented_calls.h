// The methods of the contract that this server does not offer yet.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls of SgemmStream, UploadMatrix, DownloadMatrix, ListMatrices and
// DeleteMatrix on the queue and answers each with UNIMPLEMENTED, saying what to
// use instead, until the server shuts down.
void OfferUnimplementedCalls(CallEnvironment* environment,
                             grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
