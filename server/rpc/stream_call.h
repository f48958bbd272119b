// SgemmStream: many products on one call.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls on the queue, until the server shuts down.
void OfferStreamCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
