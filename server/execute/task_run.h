// What every backend does with a task besides computing it.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "kernels/sgemm.h"
#include "server/monotonic_time.h"
#include "server/schedule/task.h"

namespace gemmd {

// Start, and the last look at the deadline before anything is copied or
// computed. False: the task has ended, by now at the latest.
bool StartInTime(Task& task, MonotonicTime now, int device);

// The task's stage times so far, for a run that began at `now`.
StageSeconds SecondsUntil(const TaskSpec& spec, MonotonicTime now);

// The product where its numbers lie, for a device that computes in the host's
// memory: staged, shared, or resident on `device`.
SgemmArgs HostArgs(const TaskSpec& spec, int device);

// Copies C to args.c, where HostArgs says that the product will be, if it is
// read and not there yet. Does nothing when beta is 0.
void PlaceHostC(const TaskSpec& spec, int device, const SgemmArgs& args);

// RESOURCE_EXHAUSTED, for the store: it makes room, or words its own error.
absl::Status NoResidentMemoryError(size_t bytes);

// What a client is told of a device that failed under its request: INTERNAL
// with ErrorInfo DEVICE_FAULT. Names no internals.
absl::Status DeviceFaultError(int device);

// What a client is told of a device that was lost before its request began:
// UNAVAILABLE with RetryInfo, since another server, or this one once it has
// restarted, can do it.
absl::Status DeviceLostError();

// What a client is told of a launch that failed on a sound device: INTERNAL
// with ErrorInfo KERNEL_FAULT.
absl::Status KernelFaultError(const SgemmKernel& kernel);

}  // namespace gemmd
