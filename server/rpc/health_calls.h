// grpc.health.v1 as completion-queue methods. gRPC's own health service runs on
// its callback API, which costs a third of the server's throughput.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls of Check and Watch on the queue, until the server shuts down.
void OfferHealthCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
