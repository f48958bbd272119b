// What the host does for a request, without network and arithmetic: decode,
// judge, admit, stage, queue, batch, encode and count. A fixed workload on one
// thread whose instructions are counted (count_instructions.sh): it does the
// same work each time, to the instruction but for the clock and the allocator.
//
//   gemmd_host_path_workload

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gemmd/v1/sgemm.pb.h"
#include "server/execute/cpu/heap_staging_pool.h"
#include "server/execute/task_run.h"
#include "server/observe/metrics.h"
#include "server/rpc/sgemm_decoder.h"
#include "server/rpc/sgemm_encoder.h"
#include "server/rpc/sgemm_task.h"
#include "server/rpc/sgemm_validation.h"
#include "server/schedule/admission.h"
#include "server/schedule/batch_scheduler.h"

namespace gemmd {
namespace {

constexpr int kRounds = 2000;
// Small operands and slices: copying is not what is to be counted.
constexpr size_t kSliceBytes = 4096;

// Ends tasks without computing them, when told to.
class NoDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  absl::Status Warm() override { return absl::OkStatus(); }

  void Execute(Batch batch, BatchDone done) override {
    waiting_.emplace_back(std::move(batch), std::move(done));
  }

  void RunAll() {
    while (!waiting_.empty()) {
      auto [batch, done] = std::move(waiting_.back());
      waiting_.pop_back();
      BatchReport report;
      for (const auto& task : batch.tasks) {
        if (!StartInTime(*task, MonotonicTime(), 0)) continue;
        report.tasks += 1;
        task->Finish(absl::OkStatus(), StageSeconds{}, 0,
                     static_cast<int>(batch.tasks.size()));
      }
      std::move(done)(report);
    }
  }

 private:
  const DeviceInfo info_{.name = "none"};
  std::vector<std::pair<Batch, BatchDone>> waiting_;
};

void SetOperand(int rows, int cols, int leading_dimension, v1::Operand& out) {
  out.set_rows(rows);
  out.set_cols(cols);
  if (leading_dimension != cols) out.set_leading_dimension(leading_dimension);
  out.set_data(std::string(size_t{4} * rows * leading_dimension, '\1'));
}

// Plain, with C and the small fields, padded, and in several slices.
std::vector<std::string> Messages() {
  std::vector<std::string> messages;
  v1::SgemmRequest request;
  SetOperand(8, 8, 8, *request.mutable_a());
  SetOperand(8, 8, 8, *request.mutable_b());
  messages.push_back(request.SerializeAsString());
  request.set_alpha(0.5f);
  request.set_beta(2.0f);
  request.set_kernel("openblas");
  request.set_request_id("0123456789abcdef");
  request.set_priority(v1::PRIORITY_BULK);
  SetOperand(8, 8, 8, *request.mutable_c());
  messages.push_back(request.SerializeAsString());
  request.Clear();
  SetOperand(16, 16, 20, *request.mutable_a());
  SetOperand(16, 16, 16, *request.mutable_b());
  messages.push_back(request.SerializeAsString());
  request.Clear();
  SetOperand(1, 64, 64, *request.mutable_a());
  SetOperand(64, 64, 64, *request.mutable_b());
  messages.push_back(request.SerializeAsString());
  return messages;
}

std::vector<ByteSlice> Slices(const std::string& message) {
  const ByteSlice all(reinterpret_cast<const uint8_t*>(message.data()),
                      message.size());
  std::vector<ByteSlice> slices;
  for (size_t at = 0; at < all.size(); at += kSliceBytes) {
    slices.push_back(all.subspan(at, std::min(kSliceBytes, all.size() - at)));
  }
  return slices;
}

// The parts of a server that a request passes on the host.
class HostPath {
 public:
  HostPath() {
    devices_.push_back(std::make_unique<NoDevice>());
    metrics_.SetDevice(devices_.front()->info(), /*up=*/true);
    scheduler_ = BatchScheduler::Create({}, devices_, &metrics_);
  }

  // Takes one request up to the queue.
  absl::Status Accept(std::span<const ByteSlice> slices) {
    metrics_.CallStarted(Method::kSgemm);
    auto fields = DecodeSgemm(slices);
    if (!fields.ok()) return fields.status();
    auto plan = PlanSgemm(*fields, SgemmLimits{});
    if (!plan.ok()) return plan.status();
    auto kernel =
        SelectSgemmKernel(*plan, "auto", registry_, MemorySpace::kHost);
    if (!kernel.ok()) return kernel.status();
    auto ticket = admission_.Admit("", plan->input_bytes + plan->output_bytes);
    if (!ticket.ok()) return ticket.status();
    auto spec = StageSgemm(*plan, slices, *staging_);
    if (!spec.ok()) return spec.status();
    spec->kernel = *kernel;
    metrics_.Problem(spec->shape.flops());
    auto waiting = std::make_shared<Waiting>();
    waiting->ticket = *std::move(ticket);
    waiting->task = std::make_shared<Task>(
        *std::move(spec), [this, waiting](TaskResult result) {
          Answer(std::move(waiting->task), std::move(waiting->ticket),
                 std::move(result));
        });
    return scheduler_->Submit(waiting->task);
  }

  void RunAll() { static_cast<NoDevice&>(*devices_[0]).RunAll(); }

  int answered() const { return answered_; }

 private:
  // What a call holds between request and answer.
  struct Waiting {
    std::shared_ptr<Task> task;
    Admission::Ticket ticket;
  };

  void Answer(std::shared_ptr<Task> task, Admission::Ticket ticket,
              TaskResult result) {
    const StageSeconds seconds = result.seconds;
    const TaskSpec& spec = task->spec();
    const grpc::ByteBuffer answer = ToMessage(EncodeSgemmAnswer(
        {.shape = spec.shape, .kernel = spec.kernel->info()}, std::move(result),
        std::move(ticket), MonotonicClock::now(), &answers_));
    RecordStages(seconds, 0.0, metrics_);
    metrics_.CallCompleted(Method::kSgemm, grpc::StatusCode::OK, 0.0);
    answered_ += answer.Valid();
  }

  const KernelRegistry registry_ = KernelRegistry::Create();
  Metrics metrics_{true, registry_};
  LiveCount answers_;
  std::unique_ptr<HeapStagingPool> staging_ =
      HeapStagingPool::Create(size_t{64} << 20).value();
  Admission admission_{AdmissionOptions{}};
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<BatchScheduler> scheduler_;
  int answered_ = 0;
};

// What is counted: the script tells callgrind the name.
extern "C" __attribute__((noinline)) void GemmdCountedWorkload(
    HostPath& path, const std::vector<std::string>& messages,
    absl::Status& status) {
  for (int round = 0; round < kRounds; ++round) {
    for (const std::string& message : messages) {
      status = path.Accept(Slices(message));
      if (!status.ok()) return;
    }
    path.RunAll();
  }
}

int Main() {
  const std::vector<std::string> messages = Messages();
  HostPath path;
  absl::Status status;
  GemmdCountedWorkload(path, messages, status);
  path.RunAll();
  const int wanted = kRounds * static_cast<int>(messages.size());
  std::printf("%d requests, %d answers: %s\n", wanted, path.answered(),
              status.ToString().c_str());
  return status.ok() && path.answered() == wanted ? 0 : 1;
}

}  // namespace
}  // namespace gemmd

int main() { return gemmd::Main(); }
