// Sgemm: one product a call.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers options.offered_calls calls on the queue, until the server shuts down.
void OfferSgemmCalls(CallEnvironment* environment,
                     grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
