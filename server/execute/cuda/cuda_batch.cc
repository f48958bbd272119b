#include "server/execute/cuda/cuda_batch.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/error_details.h"
#include "server/execute/range_allocator.h"
#include "server/execute/task_run.h"

namespace gemmd {
namespace {

constexpr absl::Duration kRetryDelay = absl::Milliseconds(100);

// A stage in a profiler's timeline, with the batch's number. Costs nothing
// where no profiler is attached.
class StageRange {
 public:
  StageRange(const char* name, uint64_t batch) {
    nvtxEventAttributes_t attributes = {};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = batch;
    nvtxRangePushEx(&attributes);
  }
  ~StageRange() { nvtxRangePop(); }
  StageRange(const StageRange&) = delete;
  StageRange& operator=(const StageRange&) = delete;
};

absl::Status Record(const CudaEvent& event, const CudaStream& stream) {
  return CudaStatus(cudaEventRecord(event.get(), stream.get()),
                    "cudaEventRecord");
}

double SecondsBetween(const CudaEvent& from, const CudaEvent& to) {
  float ms = 0;
  cudaEventElapsedTime(&ms, from.get(), to.get());
  return ms / 1e3;
}

}  // namespace

CudaBatch::CudaBatch(Batch batch, Device::BatchDone done, int device)
    : batch_(std::move(batch)), done_(std::move(done)) {
  report_.device = device;
}

void CudaBatch::Measure() {
  std::vector<SgemmArgs> problems;
  problems.reserve(batch_.tasks.size());
  for (const auto& task : batch_.tasks) {
    problems.push_back(DeviceArgs(task->spec(), {}));
  }
  workspace_bytes_ =
      RangeAllocator::RoundUp(batch_.kernel->WorkspaceBytes(problems));
  size_t bytes = workspace_bytes_;
  for (const auto& task : batch_.tasks) bytes += DeviceBytes(*task);
  bytes_needed_ = bytes;
}

void CudaBatch::RefuseWhatNeverFits(size_t capacity) {
  std::erase_if(batch_.tasks, [&](const std::shared_ptr<Task>& task) {
    const SgemmArgs problem = DeviceArgs(task->spec(), {});
    const size_t workspace = batch_.kernel->WorkspaceBytes({&problem, 1});
    const size_t bytes =
        DeviceBytes(*task) + RangeAllocator::RoundUp(workspace);
    if (bytes <= capacity) return false;
    task->Abort(
        LimitError("--pinned-pool-bytes", capacity,
                   absl::StrCat("the request needs ", bytes,
                                " bytes on the device, which has ", capacity,
                                " for requests (--pinned-pool-bytes)")));
    return true;
  });
}

CudaBatch::Reserved CudaBatch::Reserve(DeviceMemoryPool& pool, bool alone) {
  // Once: it is asked again and again while others hold the memory.
  if (!bytes_needed_) {
    RefuseWhatNeverFits(pool.capacity());
    Measure();
  }
  while (true) {
    if (batch_.tasks.empty()) return Reserved::kYes;
    std::optional<DeviceBlock> block = pool.Allocate(*bytes_needed_);
    if (block) {
      block_ = *std::move(block);
      return Reserved::kYes;
    }
    if (!alone) return Reserved::kWait;
    batch_.tasks.back()->Abort(
        QuotaError("device-memory",
                   absl::StrCat("the device's memory is taken: ", pool.used(),
                                " of ", pool.capacity(), " bytes"),
                   kRetryDelay));
    batch_.tasks.pop_back();
    Measure();
  }
}

void CudaBatch::Enqueue(Lease* lease) {
  lease_ = lease;
  enqueued_ = MonotonicClock::now();
  StartMembers();
  if (!members_.empty()) report_.status = EnqueueAll();
}

void CudaBatch::StartMembers() {
  std::byte* next = block_.data();
  workspace_ = workspace_bytes_ > 0 ? next : nullptr;
  next += workspace_bytes_;
  members_.reserve(batch_.tasks.size());
  for (const std::shared_ptr<Task>& task : batch_.tasks) {
    if (!StartInTime(*task, enqueued_, report_.device)) continue;
    const TaskSpec& spec = task->spec();
    Member& member = members_.emplace_back();
    member.task = task.get();
    member.placement = PlaceOnDevice(spec, report_.device, next);
    report_.flops += spec.shape.flops();
  }
  report_.tasks = static_cast<int>(members_.size());
}

absl::Status CudaBatch::EnqueueAll() {
  if (auto s = Record(lease_->started, lease_->stream); !s.ok()) return s;
  begun_ = true;
  if (auto s = CopyIn(); !s.ok()) return s;
  if (auto s = Record(lease_->copied_in, lease_->stream); !s.ok()) return s;
  if (auto s = Launch(); !s.ok()) return s;
  if (auto s = Record(lease_->computed, lease_->stream); !s.ok()) return s;
  if (auto s = CopyOut(); !s.ok()) return s;
  return Record(lease_->copied_out, lease_->stream);
}

absl::Status CudaBatch::CopyIn() {
  const StageRange range("gemmd h2d", batch_.id);
  TaskCopies copies;
  copies.segments.reserve(2 * members_.size());
  for (const Member& member : members_) {
    AddCopiesIn(member.task->spec(), report_.device, member.placement, copies);
  }
  report_.h2d_bytes = copies.bytes(cudaMemcpyHostToDevice);
  return gemmd::Enqueue(copies, cudaMemcpyHostToDevice, lease_->stream.get());
}

absl::Status CudaBatch::CopyOut() {
  const StageRange range("gemmd d2h", batch_.id);
  TaskCopies copies;
  copies.segments.reserve(members_.size());
  for (const Member& member : members_) {
    if (!member.status.ok()) continue;
    AddCopiesOut(member.task->spec(), member.placement, copies);
  }
  report_.d2h_bytes = copies.bytes(cudaMemcpyDeviceToHost);
  return gemmd::Enqueue(copies, cudaMemcpyDeviceToHost, lease_->stream.get());
}

absl::Status CudaBatch::Launch() {
  const StageRange range("gemmd compute", batch_.id);
  LaunchContext context;
  context.stream = lease_->stream.get();
  context.cublas = lease_->cublas.get();
  context.workspace = workspace_;
  context.workspace_bytes = workspace_bytes_;
  std::vector<SgemmArgs> problems;
  problems.reserve(members_.size());
  for (const Member& member : members_) {
    problems.push_back(DeviceArgs(member.task->spec(), member.placement));
  }
  if (batch_.fused) {
    const absl::Status launch = batch_.kernel->Launch(problems, context);
    for (Member& member : members_) member.status = launch;
    return CheckLaunch(launch);
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].status =
        LaunchAlone(members_[i].task->spec(), problems[i], context);
    absl::Status device = CheckLaunch(members_[i].status);
    if (!device.ok()) return device;
  }
  return absl::OkStatus();
}

absl::Status CudaBatch::LaunchAlone(const TaskSpec& spec, const SgemmArgs& args,
                                    const LaunchContext& context) {
  if (spec.a.form == nullptr && spec.b.form == nullptr) {
    return batch_.kernel->Launch({&args, 1}, context);
  }
  absl::StatusOr<PreparedOperands> operands =
      forms_.Use(spec, args, context.stream);
  if (!operands.ok()) return operands.status();
  return batch_.kernel->prepared()->Launch(args, *operands, context);
}

// A launch that fails on a sound device is its tasks' trouble alone; one that
// took the device down with it is everybody's.
absl::Status CudaBatch::CheckLaunch(const absl::Status& launch) {
  if (launch.ok()) return launch;
  report_.launch_status.Update(launch);
  cudaGetLastError();  // else the next launch would be blamed for it
  const cudaError_t error = cudaStreamQuery(lease_->stream.get());
  if (error == cudaErrorNotReady) {
    cudaGetLastError();
    return absl::OkStatus();
  }
  return CudaStatus(error, "after a failed launch, cudaStreamQuery");
}

bool CudaBatch::Poll() {
  if (members_.empty() || !report_.status.ok()) return true;
  const cudaError_t error = cudaEventQuery(lease_->copied_out.get());
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // it counts as an error of the next launch else
    return false;
  }
  report_.status = CudaStatus(error, "cudaEventQuery");
  return true;
}

void CudaBatch::Finish() {
  const StageRange range("gemmd finish", batch_.id);
  if (report_.status.ok()) {
    if (!members_.empty()) MeasureStages();
  } else {
    // Copies may still be under way into memory that is about to be given
    // back. The result does not matter any more.
    cudaStreamSynchronize(lease_->stream.get());
  }
  forms_.End(report_.status.ok());
  block_.Reset();
  EndMembers();
}

void CudaBatch::MeasureStages() {
  report_.seconds.h2d = SecondsBetween(lease_->started, lease_->copied_in);
  report_.seconds.compute = SecondsBetween(lease_->copied_in, lease_->computed);
  report_.seconds.d2h = SecondsBetween(lease_->computed, lease_->copied_out);
}

void CudaBatch::EndMembers() {
  for (Member& member : members_) {
    StageSeconds seconds = SecondsUntil(member.task->spec(), enqueued_);
    report_.seconds.queue = std::max(report_.seconds.queue, seconds.queue);
    seconds.h2d = report_.seconds.h2d;
    seconds.compute = report_.seconds.compute;
    seconds.d2h = report_.seconds.d2h;
    absl::Status status;
    if (!report_.status.ok()) {
      status = begun_ ? DeviceFaultError(report_.device) : DeviceLostError();
    } else if (!member.status.ok()) {
      status = KernelFaultError(*batch_.kernel);
    }
    member.task->Finish(std::move(status), seconds, report_.device,
                        report_.tasks);
  }
}

void CudaBatch::Fail(const absl::Status& device_status) {
  report_.status = device_status;
  for (const auto& task : batch_.tasks) task->Abort(DeviceLostError());
}

void CudaBatch::Report() { std::move(done_)(report_); }

}  // namespace gemmd
