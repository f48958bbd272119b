// DownloadMatrix: rows of a resident matrix, on their way back.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls on the queue, until the server shuts down.
void OfferDownloadCalls(CallEnvironment* environment,
                        grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
