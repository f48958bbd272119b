// ListMatrices and DeleteMatrix.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls on the queue, until the server shuts down.
void OfferMatrixCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
