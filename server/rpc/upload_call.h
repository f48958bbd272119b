// UploadMatrix: one stream's rows of a matrix, on their way to a device.

#pragma once

#include "server/rpc/call_environment.h"

namespace gemmd {

// Offers calls on the queue, until the server shuts down.
void OfferUploadCalls(CallEnvironment* environment,
                      grpc::ServerCompletionQueue* queue);

}  // namespace gemmd
