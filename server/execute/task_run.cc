#include "server/execute/task_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

// About what a restart takes.
constexpr absl::Duration kRestartDelay = absl::Seconds(1);

// A matrix in the host's memory.
struct HostMatrix {
  float* data = nullptr;
  int64_t leading_dimension = 0;
};

HostMatrix Locate(const TaskOperand& operand, const StagingBuffer& input,
                  int device) {
  if (operand.resident != nullptr) {
    return {reinterpret_cast<float*>(operand.resident->data(device) +
                                     operand.resident_offset),
            operand.resident->cols()};
  }
  if (operand.shared) {
    return {reinterpret_cast<float*>(operand.shared.data),
            operand.leading_dimension};
  }
  // Null where nothing is read.
  return {input.size() > 0 ? input.floats(operand.offset) : nullptr,
          operand.leading_dimension};
}

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

SgemmArgs HostArgs(const TaskSpec& spec, int device) {
  SgemmArgs args;
  args.shape = spec.shape;
  args.alpha = spec.alpha;
  args.beta = spec.beta;
  const HostMatrix a = Locate(spec.a, spec.input, device);
  const HostMatrix b = Locate(spec.b, spec.input, device);
  args.a = a.data;
  args.lda = a.leading_dimension;
  args.b = b.data;
  args.ldb = b.leading_dimension;
  args.c = spec.output.floats();
  args.ldc = spec.shape.n;
  if (spec.output_resident != nullptr) {
    args.c = reinterpret_cast<float*>(spec.output_resident->data(device) +
                                      spec.output_offset);
  } else if (spec.output_shared) {
    args.c = reinterpret_cast<float*>(spec.output_shared.data);
    args.ldc = spec.output_leading_dimension;
  }
  return args;
}

void PlaceHostC(const TaskSpec& spec, int device, const SgemmArgs& args) {
  const bool staged_in_place = spec.c.resident == nullptr && !spec.c.shared &&
                               spec.output_resident == nullptr &&
                               !spec.output_shared;
  if (spec.beta == 0 || staged_in_place) return;
  const HostMatrix c = Locate(spec.c, spec.input, device);
  if (c.data == args.c) return;  // one slice of shared memory
  const int64_t ld = std::max(c.leading_dimension, spec.shape.n);
  for (int64_t i = 0; i < spec.shape.m; ++i) {
    std::copy_n(c.data + i * ld, spec.shape.n, args.c + i * args.ldc);
  }
}

absl::Status NoResidentMemoryError(size_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("no ", bytes, " bytes in one piece for a resident matrix"));
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
