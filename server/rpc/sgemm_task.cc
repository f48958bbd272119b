#include "server/rpc/sgemm_task.h"

#include <map>
#include <string>
#include <utility>

#include "kernels/selection.h"
#include "proto/error_details.h"
#include "server/rpc/operand_copy.h"

namespace gemmd {
namespace {

// The product as it will lie in staging memory. Selection takes null pointers
// for aligned buffers of the server's own.
SgemmArgs StagedArgs(const SgemmPlan& plan) {
  return {.shape = plan.shape,
          .alpha = plan.alpha,
          .beta = plan.beta,
          .lda = StoredColsA(plan.shape),
          .ldb = StoredColsB(plan.shape),
          .ldc = plan.shape.n};
}

}  // namespace

absl::StatusOr<const SgemmKernel*> SelectSgemmKernel(
    const SgemmPlan& plan, absl::string_view default_kernel,
    const KernelRegistry& registry, MemorySpace space) {
  const bool named = !plan.kernel.empty() && plan.kernel != "auto";
  const absl::string_view name = named ? plan.kernel : default_kernel;
  auto kernel =
      SelectKernel(registry, space, StagedArgs(plan), plan.precision, name);
  if (kernel.ok()) return kernel;
  const std::map<std::string, std::string> there_are = {
      {"kernels", RunnableKernels(registry, space)}};
  if (absl::IsNotFound(kernel.status())) {
    return WithErrorInfo(ResourceNotFoundError("gemmd.v1.Kernel", name,
                                               kernel.status().message()),
                         "KERNEL_NOT_FOUND", there_are);
  }
  return WithErrorInfo(kernel.status(), "KERNEL_CANNOT_RUN", there_are);
}

absl::StatusOr<TaskSpec> StageSgemm(const SgemmPlan& plan,
                                    std::span<const ByteSlice> slices,
                                    StagingPool& staging) {
  absl::StatusOr<StagingBuffer> input = staging.Allocate(plan.input_bytes);
  if (!input.ok()) return input.status();
  absl::StatusOr<StagingBuffer> output = staging.Allocate(plan.output_bytes);
  if (!output.ok()) return output.status();
  if (plan.reads_inputs()) {
    if (plan.a.is_inline()) CopyOperand(slices, plan.a, input->data());
    if (plan.b.is_inline()) CopyOperand(slices, plan.b, input->data());
  }
  if (plan.reads_c() && plan.c.is_inline()) {
    const bool in_place = plan.output.place == OutputPlan::Place::kInline;
    CopyOperand(slices, plan.c, (in_place ? *output : *input).data());
  }

  TaskSpec spec;
  spec.shape = plan.shape;
  spec.alpha = plan.alpha;
  spec.beta = plan.beta;
  spec.priority = plan.priority;
  spec.a = {.offset = plan.a.offset,
            .leading_dimension = StoredColsA(plan.shape)};
  spec.b = {.offset = plan.b.offset,
            .leading_dimension = StoredColsB(plan.shape)};
  spec.c = {.offset = plan.c.offset, .leading_dimension = plan.shape.n};
  spec.input = *std::move(input);
  spec.output = *std::move(output);
  return spec;
}

void CountShed(const absl::Status& status, Metrics& metrics) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      metrics.Shed(QuotaSubject(status) == "queue-max-requests"
                       ? ShedReason::kQueueFull
                       : ShedReason::kMemory);
      break;
    case absl::StatusCode::kDeadlineExceeded:
      metrics.Shed(ShedReason::kDeadline);
      break;
    case absl::StatusCode::kUnavailable:
      metrics.Shed(ShedReason::kDraining);
      break;
    case absl::StatusCode::kOutOfRange:
      metrics.Shed(ShedReason::kTooLarge);
      break;
    default:
      break;
  }
}

void RecordStages(const StageSeconds& seconds, double encode_seconds,
                  Metrics& metrics) {
  metrics.StageDone(Stage::kDecode, seconds.decode);
  metrics.StageDone(Stage::kQueue, seconds.queue);
  metrics.StageDone(Stage::kH2d, seconds.h2d);
  metrics.StageDone(Stage::kCompute, seconds.compute);
  metrics.StageDone(Stage::kD2h, seconds.d2h);
  metrics.StageDone(Stage::kEncode, encode_seconds);
}

}  // namespace gemmd
