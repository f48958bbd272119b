// Which waiting tasks run together and when: the batching policy, alone.
//
// Pure: no thread, no lock, no clock. Time and the device's state are
// parameters, so every decision can be tested by a table.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/monotonic_time.h"
#include "server/schedule/drain_rate.h"
#include "server/schedule/task.h"

namespace gemmd {

// Why a batch was closed.
enum class FlushReason {
  kFull,   // it reached a limit
  kTimer,  // its first task waited for max_queue_delay
  kIdle,   // a stream was free and there is no delay to wait for
  kDrain,  // the server is shutting down
};

// Tasks that one lease runs: all of one kernel, all of one shape. On a GPU they
// are one launch if the kernel is fused, else back to back.
struct Batch {
  uint64_t id = 0;
  const SgemmKernel* kernel = nullptr;
  FlushReason reason = FlushReason::kIdle;
  std::vector<std::shared_ptr<Task>> tasks;
};

struct BatchQueueOptions {
  // Tasks in a batch, at most. --max-batch-requests
  int max_batch_requests = 64;
  // Input and output bytes of a batch, at most; one larger task runs alone.
  size_t max_batch_bytes = size_t{256} << 20;
  // 2mnk of a batch, at most; one larger task runs alone. Bounds how long a
  // small request can wait for its batch-mates.
  double max_batch_flops = 2e11;
  // How long the first task of a batch may wait for others while a stream is
  // free. 0: not at all, so a batch forms only while the device is busy.
  // --max-queue-delay
  MonotonicDuration max_queue_delay{0};
  // Waiting tasks and their bytes, at most. --queue-max-requests,
  // --queue-max-bytes
  int max_requests = 4096;
  size_t max_bytes = size_t{4} << 30;
};

// Tasks waiting for a device, oldest first within a priority.
//
// Latency: with a free stream, a task waits at most max_queue_delay before it
// is in a batch that Pop returns; without one, until every task before it that
// is not of its own batch has been popped. Bulk work does not starve: of
// kMaxBulkPasses + 1 batches popped in a row while bulk work is due, one is led
// by its oldest.
//
// Cost: Push and the removal of a task are O(log n) in the tasks waiting. So is
// Pop, except while tasks wait for max_queue_delay and a group is full: then it
// looks at the groups older than the full one.
//
// Thread-compatible: the owner locks. Tasks may end at any time meanwhile.
class BatchQueue {
 public:
  explicit BatchQueue(const BatchQueueOptions& options);

  // Adds a task. RESOURCE_EXHAUSTED (QuotaFailure naming the flag, RetryInfo
  // from the rate at which tasks have been leaving) when a limit is reached,
  // OUT_OF_RANGE when the task alone is over max_bytes, DEADLINE_EXCEEDED when
  // its deadline is not after `now`; then the task is the caller's still, and
  // not ended.
  absl::Status Push(std::shared_ptr<Task> task, MonotonicTime now);

  // The next batch for a free stream, or one with no tasks if nothing is due.
  // Tasks that have ended are dropped; those past their deadline are left to
  // TakeExpired. Never mixes kernels or shapes. Leads with the oldest
  // interactive task that is due, else the oldest bulk one (which goes first
  // all the same once interactive ones have led kMaxBulkPasses times since bulk
  // work last did); fills up with tasks of the same kernel and shape, in order
  // of age, those of the leader's priority first.
  Batch Pop(MonotonicTime now, bool draining);

  // Removes the tasks whose deadline is not after `now`, earliest first.
  std::vector<std::shared_ptr<Task>> TakeExpired(MonotonicTime now);

  // Removes all.
  std::vector<std::shared_ptr<Task>> TakeAll();

  // When Pop or TakeExpired may next have something without a Push; kNever if
  // never. `stream_free` tells whether a batch could start. Never later than
  // the truth; earlier where a task has ended that it was reckoned from.
  MonotonicTime NextEvent(bool stream_free) const;

  // Waiting now; tasks that have ended count until they are dropped.
  int requests() const { return requests_; }
  size_t bytes() const { return bytes_; }

  static constexpr int kMaxBulkPasses = 8;

 private:
  static constexpr int kPriorities = 2;

  // What the tasks of a batch have in common.
  struct Key {
    const SgemmKernel* kernel;
    GemmShape shape;

    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const Key& key) {
      return H::combine(std::move(h), key.kernel, key.shape.m, key.shape.n,
                        key.shape.k, key.shape.transpose_a,
                        key.shape.transpose_b);
    }
  };

  struct Group;
  struct Entry;
  using Entries = std::list<Entry>;
  using Deadlines = std::multimap<MonotonicTime, Entries::iterator>;

  struct Entry {
    std::shared_ptr<Task> task;
    Group* group;
    int priority;                  // index of its list in the group
    size_t bytes;                  // of the task
    uint64_t sequence;             // order of arrival
    MonotonicTime enqueued;        // when Push took it
    Deadlines::iterator deadline;  // end(): it has none
  };

  // The tasks of one key, oldest first within a priority. Never empty between
  // calls.
  struct Group {
    Key key;
    std::array<Entries, kPriorities> entries;
    int requests = 0;
    size_t bytes = 0;
  };

  // Groups by the sequence of their oldest task of a priority.
  using Heads = std::map<uint64_t, Group*>;

  static int Index(const Task& task) {
    return task.spec().priority == Priority::kBulk ? 1 : 0;
  }

  // The group's tasks reach a limit of a batch: no reason to wait for more.
  // Those that have ended count too, so that a group of cancelled tasks may
  // cut the wait of a live one short; to look for them would cost every Pop.
  bool Full(const Group& group) const;
  bool Due(const Entry& entry, MonotonicTime now, bool draining) const;
  absl::Status CheckRoom(size_t bytes, MonotonicTime now);
  void DropEnded();
  // Leaves the oldest task of `priority` one that has not ended.
  void DropEndedLeaders(int priority);
  Group* FindOrAddGroup(const TaskSpec& spec);
  // Moves `group`'s counters by one task of `bytes`, in or out.
  void Count(Group* group, int requests, size_t bytes);
  // Takes an entry out, all its traces but an empty group; the next one.
  Entries::iterator Remove(Entries::iterator it);
  void EraseIfEmpty(Group* group);
  // Pop of a batch led by a task of `priority`; false: none is due.
  bool Lead(int priority, MonotonicTime now, bool draining, Batch* batch);
  // Moves the group's tasks into `batch`; false: the next one did not fit.
  bool Fill(Group* group, int priority, MonotonicTime now, Batch* batch,
            size_t* batch_bytes);

  const BatchQueueOptions options_;
  absl::flat_hash_map<Key, std::unique_ptr<Group>> groups_;
  std::array<Heads, kPriorities> heads_;
  Deadlines deadlines_;  // of the tasks that have one
  int requests_ = 0;
  size_t bytes_ = 0;
  int full_groups_ = 0;
  int bulk_passes_ = 0;  // batches led by interactive work while bulk waited
  uint64_t next_sequence_ = 1;
  uint64_t next_batch_ = 1;
  MonotonicTime last_drop_{};
  DrainRate drain_rate_;  // in tasks
};

}  // namespace gemmd
