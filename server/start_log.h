// What an operator should read of a start: what is missing, and what there is.

#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/execute/backend.h"
#include "server/monotonic_time.h"
#include "server/options.h"

namespace gemmd {

// Version, revision and CUDA of the build.
void LogStarting();

// One line for each reason why kernels cannot run here.
void LogUnavailableKernels(const KernelRegistry& registry);

// A device that is warm.
void LogDeviceReady(absl::string_view backend, const DeviceInfo& info,
                    MonotonicDuration warm_up);

// "grpc listening on 127.0.0.1:50051\n" and the like, one line for each address
// that is open, with the ports really bound.
std::string ListeningLines(const ServerOptions& options, int grpc_port,
                           int http_port);

}  // namespace gemmd
