#include "server/schedule/row_split.h"

#include <algorithm>
#include <utility>

#include "server/execute/task_run.h"

namespace gemmd {
namespace {

size_t FloatBytes(int64_t floats) {
  return static_cast<size_t>(floats) * sizeof(float);
}

// Of the operand as it is stored, which has `cols` columns.
int64_t LeadingDimension(const TaskOperand& operand, int64_t cols) {
  return operand.resident != nullptr
             ? operand.resident->cols()
             : std::max(operand.leading_dimension, cols);
}

// What the parts take over as it is; a spec owns buffers and has no copy.
TaskSpec CommonOf(const TaskSpec& whole) {
  TaskSpec spec;
  spec.shape = whole.shape;
  spec.alpha = whole.alpha;
  spec.beta = whole.beta;
  spec.kernel = whole.kernel;
  spec.a = whole.a;
  spec.b = whole.b;
  spec.c = whole.c;
  spec.output_resident = whole.output_resident;
  spec.output_shared = whole.output_shared;
  spec.output_leading_dimension = whole.output_leading_dimension;
  spec.device = whole.device;
  spec.client = whole.client;
  spec.priority = whole.priority;
  spec.deadline = whole.deadline;
  spec.arrival = whole.arrival;
  spec.decode_seconds = whole.decode_seconds;
  return spec;
}

void TakeLonger(const StageSeconds& part, StageSeconds& all) {
  all.decode = std::max(all.decode, part.decode);
  all.queue = std::max(all.queue, part.queue);
  all.h2d = std::max(all.h2d, part.h2d);
  all.compute = std::max(all.compute, part.compute);
  all.d2h = std::max(all.d2h, part.d2h);
}

}  // namespace

std::vector<RowPart> ShareRows(const GemmShape& shape, int devices,
                               double min_flops) {
  if (min_flops <= 0 || shape.flops() < min_flops) return {};
  const int64_t steps = shape.m / kRowStep + (shape.m % kRowStep != 0);
  const int64_t parts = std::min<int64_t>(devices, steps);
  if (parts < 2) return {};
  std::vector<RowPart> shared;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t first = steps * i / parts * kRowStep;
    const int64_t end = std::min(steps * (i + 1) / parts * kRowStep, shape.m);
    shared.push_back(
        {.device = static_cast<int>(i), .first = first, .rows = end - first});
  }
  return shared;
}

RowSplit::RowSplit(TaskSpec whole, std::vector<RowPart> parts,
                   std::span<const std::unique_ptr<Device>> devices,
                   BatchScheduler& scheduler, Task::Done done)
    : whole_(CommonOf(whole)),
      parts_(std::move(parts)),
      devices_(devices),
      scheduler_(scheduler),
      blocks_(std::make_shared<Blocks>(
          Blocks{std::move(whole.input), std::move(whole.output)})),
      done_(std::move(done)),
      to_come_(static_cast<int>(parts_.size())) {}

// An operand of a part, from `first_byte` of the whole one on.
TaskOperand RowSplit::InputFrom(const TaskOperand& operand,
                                size_t first_byte) const {
  TaskOperand part = operand;
  if (operand.resident != nullptr) {
    part.resident_offset += first_byte;
  } else if (operand.shared) {
    part.shared.data += first_byte;
  } else if (blocks_->input.size() > 0) {
    part.shared = {blocks_,
                   blocks_->input.data() + operand.offset + first_byte};
  }
  return part;
}

void RowSplit::PlaceA(const RowPart& part, TaskSpec& spec) const {
  const int64_t ld = LeadingDimension(whole_.a, StoredColsA(whole_.shape));
  const bool columns = whole_.shape.transpose_a;
  spec.a = InputFrom(whole_.a, FloatBytes(part.first * (columns ? 1 : ld)));
  // The part's own stored columns are fewer.
  if (spec.a.resident == nullptr) spec.a.leading_dimension = ld;
}

void RowSplit::PlaceC(const RowPart& part, TaskSpec& spec) const {
  if (whole_.beta == 0) return;
  const int64_t ld = LeadingDimension(whole_.c, whole_.shape.n);
  const bool in_output = whole_.c.resident == nullptr && !whole_.c.shared &&
                         whole_.output_resident == nullptr &&
                         !whole_.output_shared;
  if (in_output) {
    spec.c.shared = spec.output_shared;
    spec.c.leading_dimension = whole_.shape.n;
  } else {
    spec.c = InputFrom(whole_.c, FloatBytes(part.first * ld));
  }
}

void RowSplit::PlaceOutput(const RowPart& part, TaskSpec& spec) const {
  const int64_t n = whole_.shape.n;
  if (part.output != nullptr) {
    spec.output_resident = part.output;
  } else if (whole_.output_resident != nullptr) {
    spec.output_offset = FloatBytes(part.first * n);
  } else if (whole_.output_shared) {
    const int64_t ld = std::max(whole_.output_leading_dimension, n);
    spec.output_shared.data += FloatBytes(part.first * ld);
  } else {
    spec.output_shared = {blocks_,
                          blocks_->output.data() + FloatBytes(part.first * n)};
    spec.output_leading_dimension = n;
  }
}

TaskSpec RowSplit::SpecOf(const RowPart& part) const {
  TaskSpec spec = CommonOf(whole_);
  spec.shape.m = part.rows;
  spec.device = part.device;
  PlaceA(part, spec);
  spec.b = InputFrom(whole_.b, 0);
  PlaceOutput(part, spec);
  PlaceC(part, spec);
  return spec;
}

absl::Status RowSplit::Submit() {
  absl::Status refused;
  for (const RowPart& part : parts_) {
    const auto task = std::make_shared<Task>(
        SpecOf(part), [self = shared_from_this()](const TaskResult& result) {
          self->PartEnded(result);
        });
    absl::Status status;
    {
      MutexLock lock(&mu_);
      tasks_.push_back(task);
      status = error_;
    }
    if (status.ok()) status = scheduler_.Submit(task);
    if (!status.ok()) task->Abort(status);
    refused.Update(status);
  }
  return refused;
}

void RowSplit::Abort(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    error_.Update(why);
  }
  AbortTasks(why);
}

void RowSplit::AbortTasks(const absl::Status& why) {
  std::vector<std::weak_ptr<Task>> tasks;
  {
    MutexLock lock(&mu_);
    tasks = tasks_;
  }
  for (const std::weak_ptr<Task>& weak : tasks) {
    if (const auto task = weak.lock()) task->Abort(why);
  }
}

bool RowSplit::IsLast(const absl::Status& status) {
  MutexLock lock(&mu_);
  error_.Update(status);
  return --to_come_ == 0;
}

void RowSplit::PartEnded(const TaskResult& result) {
  {
    MutexLock lock(&mu_);
    TakeLonger(result.seconds, seconds_);
    ran_ |= result.ran;
  }
  const bool last = IsLast(result.status);
  if (last) return Gather();
  if (!result.status.ok()) AbortTasks(result.status);
}

// All parts have ended. Rows that were made on another device than C's go home.
void RowSplit::Gather() {
  bool failed;
  int copies = 1;  // one for the start of the others
  for (const RowPart& part : parts_) copies += part.output != nullptr;
  {
    MutexLock lock(&mu_);
    failed = !error_.ok();
    to_come_ = copies;
  }
  if (failed) return End();
  for (const RowPart& part : parts_) {
    if (part.output == nullptr) continue;
    const int home = whole_.output_resident->home();
    devices_[home]->CopyFrom(
        *part.output->memory(part.device),
        *whole_.output_resident->memory(home),
        FloatBytes(part.first * whole_.shape.n), part.output->bytes(),
        [self = shared_from_this(), home](const absl::Status& status) {
          if (!status.ok()) self->scheduler_.DeviceFailed(home, status);
          self->RowsGathered(status.ok() ? status : DeviceFaultError(home));
        });
  }
  RowsGathered(absl::OkStatus());
}

void RowSplit::RowsGathered(const absl::Status& status) {
  if (IsLast(status)) End();
}

bool RowSplit::AnyPartStillRuns() {
  MutexLock lock(&mu_);
  for (const std::weak_ptr<Task>& weak : tasks_) {
    const auto task = weak.lock();
    if (task != nullptr && !task->ended()) return true;
  }
  return false;
}

void RowSplit::End() {
  TaskResult result;
  {
    MutexLock lock(&mu_);
    result.status = error_;
    result.seconds = seconds_;
    result.ran = ran_;
  }
  if (result.status.ok()) result.output = std::move(blocks_->output);
  // As a task does: before the caller hears of the end. The tasks hold the
  // blocks too, until they go themselves, which may be later.
  if (!AnyPartStillRuns()) {
    blocks_->input.Reset();
    blocks_->output.Reset();
  }
  blocks_.reset();
  result.device = whole_.output_resident != nullptr
                      ? whole_.output_resident->home()
                      : parts_.front().device;
  Task::Done done = std::move(done_);
  std::move(done)(std::move(result));
}

}  // namespace gemmd
