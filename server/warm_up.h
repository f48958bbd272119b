// The devices of a start: made warm, told to the metrics and the log, sampled.

#pragma once

#include "absl/status/status.h"
#include "server/execute/backend.h"
#include "server/observe/metrics.h"

namespace gemmd {

// Launches every kernel once on every device, which takes seconds on a GPU.
// The error of the first device that cannot.
absl::Status WarmDevices(const Backend& backend, Metrics& metrics);

// From now on /metrics has what NVML knows of the backend's GPUs; where there
// are none, or no NVML, it has not, with a line in the log for the latter.
void SampleDevices(const Backend& backend, Metrics& metrics);

}  // namespace gemmd
