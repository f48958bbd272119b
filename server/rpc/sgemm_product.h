// One product from its decoded message to its answer, whatever call brought it.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/observe/event_log.h"
#include "server/rpc/call_environment.h"
#include "server/rpc/completion_loop.h"
#include "server/rpc/live_count.h"
#include "server/rpc/product_placing.h"
#include "server/rpc/sgemm_encoder.h"
#include "server/rpc/sgemm_fields.h"
#include "server/rpc/sgemm_validation.h"
#include "server/schedule/row_split.h"
#include "server/store/request_log.h"

namespace gemmd {

// Of the call that brought a product.
struct SgemmOrigin {
  std::string client;
  bool local = false;  // over the unix socket
  MonotonicTime arrival;
  MonotonicTime deadline = kNever;
  CompletionLoop* loop = nullptr;  // of its call, if one runs it
};

// The steps of a product, each begun by the one before:
//
//   Start     judged, kernel chosen, bytes admitted, what is inline copied
//   its turn  where it changes a resident matrix in place: one at a time, and
//             never twice under one request id
//   placing   resident operands are found, a device is chosen that has them,
//             those that lie elsewhere are copied there, room is made for a
//             resident output
//   the task  queued, run, ended: the scheduler's and the device's; a large
//             product's rows are shared by all devices, a task each
//   the end   a resident output is published, the answer encoded
//
// A step may go on on another thread: a worker, or one of a device's; the end
// may come back to the polling thread (CompletionLoop::Takes).
//
// Thread-safety: Start until it is OK, by one thread at a time; Cancel from any
// thread. It must live until Start
// has returned an error or `done` was called; then it may be destroyed, in
// `done` too.
class SgemmProduct {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<EncodedAnswer>) &&>;

  explicit SgemmProduct(CallEnvironment* environment);
  SgemmProduct(const SgemmProduct&) = delete;
  SgemmProduct& operator=(const SgemmProduct&) = delete;

  // OK: `done` is called once, maybe before this returns. Not OK: it is not,
  // and nothing is held; RESOURCE_EXHAUSTED with RetryInfo may be tried again.
  absl::Status Start(SgemmOrigin origin, const SgemmFields& fields,
                     std::span<const ByteSlice> slices, Done done);

  // The answer is not wanted any more: `done` is called with `why`, soon (in
  // here while it waits for its turn or in the queue), unless a device runs the
  // product already or it is done.
  void Cancel(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // Adds what is known of the product. After its end.
  void Describe(EndedRequest* request) const;

 private:
  absl::StatusOr<TaskSpec> Stage(const SgemmOrigin& origin,
                                 const SgemmFields& fields,
                                 std::span<const ByteSlice> slices);

  // Its turn.
  void AwaitTurn() ABSL_LOCKS_EXCLUDED(mu_);
  void OnTurn(RequestLog::Seen seen);
  void EndTurn(bool applied);

  void Place();
  void Submit() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SubmitTask() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status SubmitParts() ABSL_LOCKS_EXCLUDED(mu_);
  void OnTaskDone(TaskResult result);
  void Conclude(TaskResult result);
  void End(absl::StatusOr<EncodedAnswer> answer);

  absl::Status cancelled() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return cancelled_;
  }

  CallEnvironment* const environment_;

  // Each written by one step and read by later ones.
  SgemmPlan plan_;
  const SgemmKernel* kernel_ = nullptr;
  bool planned_ = false;
  Admission::Ticket ticket_;
  TaskSpec spec_;  // until the task is made
  Done done_;
  CompletionLoop* loop_ = nullptr;
  LiveCount::Hold decoding_;  // of one with something resident, until Submit
  bool has_turn_ = false;
  std::string client_;          // of one with something resident
  std::vector<RowPart> parts_;  // of one that is split
  ProductPlacing placing_;      // of one with something resident
  std::string output_id_;
  std::optional<EndedRequest::Run> run_;  // for the log

  mutable Mutex mu_;
  // Not owners: a task that everybody has let go of ends, and so does this.
  std::weak_ptr<Task> task_ ABSL_GUARDED_BY(mu_);
  std::weak_ptr<RowSplit> split_ ABSL_GUARDED_BY(mu_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mu_);  // not OK: by whom
  uint64_t turn_ ABSL_GUARDED_BY(mu_) = 0;       // what it waits or waited for
};

}  // namespace gemmd
