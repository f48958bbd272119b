// One large product on several devices: each makes some rows of C.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sgemm.h"
#include "server/execute/backend.h"
#include "server/mutex.h"
#include "server/schedule/batch_scheduler.h"
#include "server/schedule/task.h"
#include "server/store/stored_matrix.h"

namespace gemmd {

// Rows of C that one device makes.
struct RowPart {
  int device = 0;
  int64_t first = 0;
  int64_t rows = 0;
  // For a resident C that lives on another device: where these rows are made,
  // a matrix of `rows` rows on `device` and of nobody else. Null: they are made
  // where they belong.
  std::shared_ptr<StoredMatrix> output;
};

// The parts of a product of `min_flops` or more, part i on device i, as equal
// as multiples of kRowStep can be; none where the product is smaller, min_flops
// is 0, or there are no two parts to make.
//
// Follows from the shape and the number of devices alone, never from load, and
// so do the bits of the answer (I6): they are those of its parts. Those are the
// bits of the whole where the order of a kernel's sums does not depend on m.
std::vector<RowPart> ShareRows(const GemmShape& shape, int devices,
                               double min_flops);

// Tiles of every kernel end here, and rows that begin here are aligned to
// 256 bytes in a packed matrix.
inline constexpr int64_t kRowStep = 256;

// The tasks of the parts, and their one end.
//
// Operands and output may lie anywhere that a task's may. What is staged stays
// with the split, and its tasks read and write it as a client's shared memory;
// what is resident must be on every device that makes a part.
//
// Errors: the first part that fails ends all others that have not begun, and
// `done` has its status, once the last has ended.
//
// Thread-safe. Kept alive by its tasks and copies.
class RowSplit : public std::enable_shared_from_this<RowSplit> {
 public:
  // `whole` is the product as one task would have it. `done` is called as a
  // task's, once, with the longest of the parts' stages; C is gathered by then.
  // `devices` and `scheduler` outlive the end.
  RowSplit(TaskSpec whole, std::vector<RowPart> parts,
           std::span<const std::unique_ptr<Device>> devices,
           BatchScheduler& scheduler, Task::Done done);

  // Queues the parts; once. The error of the first that was refused, if any,
  // which is also how the product ends then. `done` may have been called when
  // it returns.
  absl::Status Submit() ABSL_LOCKS_EXCLUDED(mu_);

  // Ends with `why`, soon, unless all parts are done: those that run go on to
  // their end, the others never begin. Also before Submit.
  void Abort(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What is staged. Its buffers outlive a device that was given up.
  struct Blocks {
    StagingBuffer input;
    StagingBuffer output;
  };

  TaskSpec SpecOf(const RowPart& part) const;
  TaskOperand InputFrom(const TaskOperand& operand, size_t first_byte) const;
  void PlaceA(const RowPart& part, TaskSpec& spec) const;
  void PlaceC(const RowPart& part, TaskSpec& spec) const;
  void PlaceOutput(const RowPart& part, TaskSpec& spec) const;
  void AbortTasks(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void PartEnded(const TaskResult& result) ABSL_LOCKS_EXCLUDED(mu_);
  void Gather() ABSL_LOCKS_EXCLUDED(mu_);
  void RowsGathered(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // The last of the parts, or of the copies, is over. False: it was not.
  bool IsLast(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // On a device that was given up, and may still write to what is staged.
  bool AnyPartStillRuns() ABSL_LOCKS_EXCLUDED(mu_);
  void End() ABSL_LOCKS_EXCLUDED(mu_);

  const TaskSpec whole_;  // without its staging buffers
  const std::vector<RowPart> parts_;
  const std::span<const std::unique_ptr<Device>> devices_;
  BatchScheduler& scheduler_;
  std::shared_ptr<Blocks> blocks_;
  Task::Done done_;

  Mutex mu_;
  // Not owners: a task that everybody has let go of ends.
  std::vector<std::weak_ptr<Task>> tasks_ ABSL_GUARDED_BY(mu_);
  int to_come_ ABSL_GUARDED_BY(mu_);  // parts, then copies, that have not ended
  absl::Status error_ ABSL_GUARDED_BY(mu_);  // the first
  StageSeconds seconds_ ABSL_GUARDED_BY(mu_);
  bool ran_ ABSL_GUARDED_BY(mu_) = false;  // some part
};

}  // namespace gemmd
