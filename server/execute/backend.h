// The seam between scheduling and hardware. Everything above it is the same on
// a CPU and on a GPU; everything below it knows one of them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "server/execute/resident_memory.h"
#include "server/execute/staging.h"
#include "server/schedule/batch_queue.h"

namespace gemmd {

struct DeviceInfo {
  int index = 0;  // in Backend::devices()
  std::string name;
  uint64_t memory_bytes = 0;
  std::string compute_capability;  // "9.0"; empty for a CPU
  int streams = 1;                 // batches it runs at the same time
  // FP32 operations a second at the highest clock; 0: not known.
  double peak_flops = 0;
  // Operations a second that its slowest kernel does at least.
  double slowest_flops = 1e8;
  std::string uuid;  // "GPU-" and the hex groups, as NVML's; empty for a CPU
};

// What running a batch cost, for metrics.
struct BatchReport {
  absl::Status status;  // not OK: the device cannot be trusted any more
  // The first launch that failed on a device that is otherwise sound. Both are
  // for logs: unlike what tasks are told, they may name internals.
  absl::Status launch_status;
  int device = 0;
  int tasks = 0;  // that ran; those that had ended before are not among them
  StageSeconds seconds;
  double flops = 0;
  uint64_t h2d_bytes = 0;
  uint64_t d2h_bytes = 0;
};

// Something that runs batches, `info().streams` of them at a time.
//
// Thread-safe.
class Device {
 public:
  using BatchDone = absl::AnyInvocable<void(const BatchReport&) &&>;

  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Runs `batch` and returns at once, without waiting for a device.
  //
  // Calls Start on each task (a task for which it is false is left out), checks
  // its deadline before anything is copied, runs the rest and calls Finish on
  // each exactly once, on every path (Abort on what never starts); after the
  // last one calls `done` once. Both happen on a thread of the device, or
  // inside Execute where that is as quick as handing the batch over.
  //
  // Needs: at most info().streams batches between Execute and `done`.
  // Errors: a task's own failure goes to its Finish. A fault of the device goes
  //   to the report, and to all of the batch's tasks: as INTERNAL with
  //   ErrorInfo where they had begun, else as UNAVAILABLE with RetryInfo.
  virtual void Execute(Batch batch, BatchDone done) = 0;

  // Runs every kernel once and fills pools and lazily loaded modules, so that
  // the first request is as fast as the hundredth. Blocks; under 10 s.
  virtual absl::Status Warm() = 0;

  // From here on: resident matrices. A device that keeps none leaves these as
  // they are: no capacity, and UNIMPLEMENTED for the rest.

  // Memory for a resident matrix, from a part of the device set aside for them.
  // RESOURCE_EXHAUSTED when there is not so much in one piece now. Takes well
  // under 10 us once warm (I3).
  virtual absl::StatusOr<std::unique_ptr<ResidentMemory>> AllocateResident(
      size_t bytes);
  virtual size_t resident_capacity() const { return 0; }

  // Copies between staging and resident memory, asynchronous, beside the
  // batches, and each way in the order in which they were asked for. `done` is
  // called once, on a thread of the device's, and has the staging memory back;
  // the resident memory must live until then. Ranges lie inside. An error is
  // the device's fault, as in BatchReport::status.
  using CopyDone = absl::AnyInvocable<void(absl::Status, StagingBuffer) &&>;
  virtual void CopyIn(ResidentMemory& to, size_t offset, StagingBuffer from,
                      CopyDone done);
  virtual void CopyOut(const ResidentMemory& from, size_t offset,
                       StagingBuffer to, CopyDone done);

  // Copies the first `bytes` of `from`, which may be another device's of the
  // same backend, to `to`, which is this device's, from byte `offset` on.
  virtual void CopyFrom(const ResidentMemory& from, const ResidentMemory& to,
                        size_t offset, size_t bytes,
                        absl::AnyInvocable<void(absl::Status) &&> done);
};

// The devices of one kind, and the staging memory that suits them.
//
// Destroyed after every Execute has called its `done` and every StagingBuffer
// is back.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual absl::string_view name() const = 0;  // "cpu" or "cuda"
  virtual MemorySpace kernel_space() const = 0;
  virtual std::span<const std::unique_ptr<Device>> devices() const = 0;
  virtual StagingPool& staging() = 0;

  // Makes memory of a client's (a HostSlice's region) as quick to copy from and
  // to as staging memory, until Unpin with the same address. Page-aligned; may
  // block. An error means that it stays as it was, which is slower and right.
  // Not on a device's thread: both may take milliseconds and leave the calling
  // thread with another current device.
  virtual absl::Status Pin(std::byte* data, size_t bytes) {
    return absl::OkStatus();
  }
  virtual void Unpin(std::byte* data) {}
};

struct BackendOptions {
  // "auto" takes CUDA where a device really answers, else the CPU.
  std::string backend = "auto";
  // Batches at a time, a device; 0: the backend's own default.
  int streams_per_device = 0;
  // CUDA ordinals, each of which must answer; empty: all that answer and are of
  // the first one's model.
  std::vector<int> devices;
  // Staging memory, at most; never more than half of what there is.
  size_t staging_bytes = size_t{4} << 30;
  // Of each device, for requests; nullopt: as much as can be staged, and an
  // eighth of the device at least. A CPU computes where the numbers are.
  std::optional<size_t> request_bytes = std::nullopt;
  // Of each device, for resident matrices. --matrix-store-bytes; nullopt: half
  // of what a GPU has free, an eighth of the container's memory on a CPU.
  std::optional<size_t> resident_bytes = 0;
  // Told, in one line for the operator, of devices that are there and not used.
  std::function<void(absl::string_view)> warn = {};
};

// The CUDA devices that CreateBackend takes with these options, for who makes
// the registry: empty where it takes the CPU, or nothing and then says why.
// Tells nobody.
std::vector<int> DevicesFor(const BackendOptions& options);

// Makes the backend asked for. `registry` outlives it.
// FAILED_PRECONDITION, saying what is missing, when "cuda" was asked for and
// cannot be had; INVALID_ARGUMENT for an unknown name or device.
// Both are defined in the file CMake picks: there is no #ifdef for CUDA.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const BackendOptions& options, const KernelRegistry& registry);

}  // namespace gemmd
