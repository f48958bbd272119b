#include "server/execute/task_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

// About what a restart takes.
constexpr absl::Duration kRestartDelay = absl::Seconds(1);

}  // namespace

bool StartInTime(Task& task, MonotonicTime now, int device) {
  if (!task.Start()) return false;
  const TaskSpec& spec = task.spec();
  if (spec.deadline > now) return true;
  task.Finish(absl::DeadlineExceededError(
                  "the deadline passed before the device began the request"),
              SecondsUntil(spec, now), device, /*batch_size=*/1);
  return false;
}

StageSeconds SecondsUntil(const TaskSpec& spec, MonotonicTime now) {
  StageSeconds seconds;
  seconds.decode = spec.decode_seconds;
  seconds.queue =
      std::max(0.0, Seconds(now - spec.arrival) - spec.decode_seconds);
  return seconds;
}

SgemmArgs HostArgs(const TaskSpec& spec) {
  SgemmArgs args;
  args.shape = spec.shape;
  args.alpha = spec.alpha;
  args.beta = spec.beta;
  if (spec.input.size() > 0) {
    args.a = spec.input.floats(spec.a.offset);
    args.b = spec.input.floats(spec.b.offset);
  }
  args.lda = spec.a.leading_dimension;
  args.ldb = spec.b.leading_dimension;
  args.c = spec.output.floats();
  args.ldc = spec.shape.n;
  return args;
}

absl::Status DeviceFaultError(int device) {
  return FaultError("DEVICE_FAULT",
                    "the device failed while the request ran; the server will "
                    "restart",
                    {{"device", absl::StrCat(device)}});
}

absl::Status DeviceLostError() {
  return UnavailableRetryError(
      "the server lost its device before the request began", kRestartDelay);
}

absl::Status KernelFaultError(const SgemmKernel& kernel) {
  return FaultError("KERNEL_FAULT",
                    absl::StrCat("the kernel ", kernel.info().name,
                                 " failed on this product; another kernel may "
                                 "do"),
                    {{"kernel", kernel.info().name}});
}

}  // namespace gemmd
