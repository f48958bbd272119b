// One product on its way through the server, from the decoded request to the
// answer. The unit of the queue, the batch and the backend.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/sgemm.h"
#include "server/execute/host_slice.h"
#include "server/execute/staging.h"
#include "server/monotonic_time.h"
#include "server/store/stored_matrix.h"

namespace gemmd {

enum class Priority { kInteractive, kBulk };

// Where the time of a product went, in seconds. Members of one launch share
// its h2d, compute and d2h.
struct StageSeconds {
  double decode = 0;
  double queue = 0;
  double h2d = 0;
  double compute = 0;
  double d2h = 0;
};

// Where an operand lies: in its task's input block, unless one of the two below
// is set.
struct TaskOperand {
  size_t offset = 0;                             // bytes; a multiple of 256
  int64_t leading_dimension = 0;                 // elements
  std::shared_ptr<const StoredMatrix> resident;  // packed
  std::shared_ptr<OperandForm> form;  // of `resident` for the task's kernel, on
                                      // the task's device; null: none is kept
  size_t resident_offset = 0;         // bytes into it, of a part; likewise
  HostSlice shared;
};

// The task may run on any device.
inline constexpr int kAnyDevice = -1;

// What is to be computed.
//
// C's place is `output`, packed (ldc = n), unless one of the other two outputs
// is set. When beta != 0, C is read from `c`; one that is neither resident nor
// shared stands where the product will, in `output`, or for an output elsewhere
// in `input` at its offset.
struct TaskSpec {
  GemmShape shape;
  float alpha = 1.0f;
  float beta = 0.0f;
  const SgemmKernel* kernel = nullptr;  // never null
  TaskOperand a;
  TaskOperand b;
  TaskOperand c;
  StagingBuffer input;
  StagingBuffer output;
  std::shared_ptr<StoredMatrix> output_resident;  // of nobody else yet
  size_t output_offset = 0;  // bytes into it, of a part; likewise
  HostSlice output_shared;
  int64_t output_leading_dimension = 0;  // of output_shared, in elements

  // Where its resident operands and output are.
  int device = kAnyDevice;

  std::string client;  // who asks: fairness and quotas
  Priority priority = Priority::kInteractive;
  MonotonicTime deadline = kNever;
  MonotonicTime arrival;      // when the call's message was there
  double decode_seconds = 0;  // until now

  // Of staging memory.
  size_t bytes() const { return input.size() + output.size(); }
};

// How a task ended.
struct TaskResult {
  absl::Status status;
  // C, packed; empty unless status is OK, and where C went elsewhere.
  StagingBuffer output;
  StageSeconds seconds;
  // Whether a device had it, which, and with how many in all.
  bool ran = false;
  int device = 0;
  int batch_size = 1;
};

// A product and its one end.
//
//   queued --Start--> running --Finish--------------> done
//      |                 \-----Abandon--> abandoned --Finish--> done
//      \------------- Abort ------------> done
//
// The transitions are atomic, so exactly one of Abort, Abandon and Finish ends
// a task and runs `done` once, on the thread that ended it, with no lock of
// ours held (I1, I2). `done` must not block. A task destroyed before its end is
// ended by the destructor with INTERNAL.
//
// Thread-safety: Start, Abort and Finish from any thread. The buffers and the
// resident output of `spec` belong to whoever made the task until it is
// submitted, then to Abort (which gives them back) or, from Start to Finish, to
// the backend; the rest of `spec` does not change once the task is submitted.
class Task {
 public:
  using Done = absl::AnyInvocable<void(TaskResult) &&>;

  Task(TaskSpec spec, Done done);
  ~Task();
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const TaskSpec& spec() const { return spec_; }
  TaskSpec& mutable_spec() { return spec_; }

  // queued -> running. False: the task has ended, leave it alone.
  bool Start();

  // queued -> done with `status` (CANCELLED, DEADLINE_EXCEEDED,
  // UNAVAILABLE...). False: it runs or has ended, and will get or has had its
  // own end.
  bool Abort(absl::Status status);

  // running -> abandoned with `status`, for a device that does not come to an
  // end. It may still write to the staging buffers, which stay with the task.
  // False: the task does not run.
  bool Abandon(absl::Status status);

  // running -> done. On OK the result takes the output buffer. Needs: Start was
  // true, and no Finish since; else the process is ended. Of a task that was
  // abandoned it only gives the buffers back.
  void Finish(absl::Status status, const StageSeconds& seconds, int device,
              int batch_size);

  // Done. For dropping dead entries of a queue.
  bool ended() const;

  // spec().bytes() when the task was made: what it holds while it waits. Safe
  // to read beside an Abort.
  size_t bytes() const { return bytes_; }

 private:
  enum class State { kQueued, kRunning, kAbandoned, kDone };
  void GiveMemoryBack();
  void End(TaskResult result);

  TaskSpec spec_;
  const size_t bytes_;
  Done done_;  // taken by the thread that wins the transition to kDone
  std::atomic<State> state_{State::kQueued};
};

}  // namespace gemmd
