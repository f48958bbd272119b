#include "server/schedule/task.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/base/attributes.h"

namespace gemmd {

Task::Task(TaskSpec spec, Done done)
    : spec_(std::move(spec)), bytes_(spec_.bytes()), done_(std::move(done)) {}

Task::~Task() {
  const State was = state_.exchange(State::kDone, std::memory_order_acq_rel);
  if (was == State::kQueued || was == State::kRunning) {
    TaskResult result;
    result.status = absl::InternalError(
        "the server lost this request before it was done; please report it");
    End(std::move(result));
  }
}

bool Task::Start() {
  State expected = State::kQueued;
  return state_.compare_exchange_strong(expected, State::kRunning,
                                        std::memory_order_acq_rel);
}

bool Task::Abort(absl::Status status) {
  State expected = State::kQueued;
  if (!state_.compare_exchange_strong(expected, State::kDone,
                                      std::memory_order_acq_rel)) {
    return false;
  }
  // It may stay in the queue for a while. Not so the operands, by which queue
  // and backend sort what they hold.
  spec_.output_resident.reset();
  TaskResult result;
  result.status = std::move(status);
  result.seconds.decode = spec_.decode_seconds;
  End(std::move(result));
  return true;
}

bool Task::Abandon(absl::Status status) {
  State expected = State::kRunning;
  if (!state_.compare_exchange_strong(expected, State::kAbandoned,
                                      std::memory_order_acq_rel)) {
    return false;
  }
  TaskResult result;
  result.status = std::move(status);
  result.seconds.decode = spec_.decode_seconds;
  Done done = std::move(done_);
  if (done) std::move(done)(std::move(result));
  return true;
}

void Task::Finish(absl::Status status, const StageSeconds& seconds, int device,
                  int batch_size) {
  State expected = State::kRunning;
  if (!state_.compare_exchange_strong(expected, State::kDone,
                                      std::memory_order_acq_rel)) {
    if (expected == State::kAbandoned) {
      GiveMemoryBack();
      state_.store(State::kDone, std::memory_order_release);
      return;
    }
    std::fputs("gemmd: Task::Finish of a task that does not run\n", stderr);
    std::abort();  // a mistake of the backend: its client would wait for ever
  }
  TaskResult result;
  if (status.ok()) result.output = std::move(spec_.output);
  result.status = std::move(status);
  result.seconds = seconds;
  result.ran = true;
  result.device = device;
  result.batch_size = batch_size;
  End(std::move(result));
}

bool Task::ended() const {
  return state_.load(std::memory_order_acquire) == State::kDone;
}

void Task::GiveMemoryBack() {
  spec_.input.Reset();
  spec_.output.Reset();
}

void Task::End(TaskResult result) {
  // The staging memory goes back before the caller hears of the end, so that a
  // caller that asks again at once finds it free.
  GiveMemoryBack();
  Done done = std::move(done_);
  if (done) std::move(done)(std::move(result));
}

}  // namespace gemmd
