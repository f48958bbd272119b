// Which waiting tasks run together, when, and in whose turn: the batching
// policy, alone.
//
// Pure: no thread, no lock, no clock. Time and the free device are parameters,
// so every decision can be tested by a table.

#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/monotonic_time.h"
#include "server/schedule/batch_key.h"
#include "server/schedule/client_turns.h"
#include "server/schedule/task.h"

namespace gemmd {

// Why a batch was closed.
enum class FlushReason {
  kFull,   // it reached a limit
  kTimer,  // its first task waited for max_queue_delay
  kIdle,   // a stream was free and there is no delay to wait for
  kDrain,  // the server is shutting down
};

// Tasks that one lease runs, all of one BatchKey.
struct Batch {
  uint64_t id = 0;
  const SgemmKernel* kernel = nullptr;
  bool fused = false;  // one launch on a GPU, else back to back
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
  // Products up to this share a launch with others of any shape, where the
  // kernel can (320^3).
  double max_mixed_flops = 6.6e7;
  // How long the first task of a batch may wait for others while a stream is
  // free. 0: not at all, so a batch forms only while the device is busy, or of
  // what is held.
  // --max-queue-delay
  MonotonicDuration max_queue_delay{0};
  // How long rows against a resident B may be held, at most, while more
  // requests are at the door (see Push): what is held together reads B once.
  // Where max_queue_delay is 0; 0: not at all. --max-row-hold
  MonotonicDuration max_hold = std::chrono::microseconds(500);
};

// Tasks waiting for a device.
//
// Who goes first: interactive work before bulk work; within a priority the
// client that has been served least (ClientTurns, by CostOf), and of a client's
// tasks the oldest. The batch of that task, its leader, fills up with tasks of
// its BatchKey, of its own priority first, one of each client in turn.
//
// How long a task waits, once a stream is free that can take it: at most
// max_queue_delay, or max_hold, until it is due, and no longer than the task
// before it in its client's line. Then, with N other clients waiting at its
// priority, a client's first task is in one of the next N + 1 batches that this
// priority leads (however many tasks those clients have), if the client has
// had no more than they; its k-th task leads after what comes before it was
// served and each other client was served as much. Interactive work may lead
// kMaxBulkPasses batches in a row while bulk work waits that the device could
// take; the next is bulk work's. So of the batches of a device bulk work leads
// a ninth at least, and interactive work eight ninths.
//
// The number of tasks is the owner's to bound (Admission). Tasks that have
// ended stay, but for resident operands without memory, until met or too many.
//
// Cost: Push, Pop and the removal of a task are O(log n) a task, but for the
// amortised removal of those that have ended.
//
// Thread-compatible: the owner locks. Tasks may end at any time meanwhile.
class BatchQueue {
 public:
  explicit BatchQueue(const BatchQueueOptions& options, int devices = 1);

  // Adds a task; its spec's device is kAnyDevice or below `devices`. With
  // `hold`, the caller is about to look for more and says Release when there is
  // none: so a lone request is not delayed, and a batch fills exactly where
  // requests come faster than they can be taken in, which is where they would
  // wait anyway. DEADLINE_EXCEEDED when its deadline is not after `now`; then
  // the task is the caller's still, and not ended.
  absl::Status Push(std::shared_ptr<Task> task, MonotonicTime now,
                    bool hold = false);

  // Whether a task that comes now need not wait here: nothing else does, and
  // there is no delay. Then Pass is Push and Pop(device) in one, for a device
  // that can take it: the batch is the same, nothing stays behind, and the two
  // take three times as long.
  bool MayPass() const {
    return requests_ == 0 && options_.max_queue_delay.count() == 0;
  }
  absl::StatusOr<Batch> Pass(std::shared_ptr<Task> task, int device,
                             MonotonicTime now);

  // What is held is due. False: nothing was.
  bool Release();

  // The next batch for a free stream of `device`, or one with no tasks if
  // nothing is due that it can take. Tasks that have ended are dropped.
  // Needs: TakeExpired(now) was called.
  Batch Pop(int device, MonotonicTime now);

  // Removes the tasks whose deadline is not after `now`, earliest first.
  std::vector<std::shared_ptr<Task>> TakeExpired(MonotonicTime now);

  // Removes those that only `device` can take.
  std::vector<std::shared_ptr<Task>> TakeBoundTo(int device);

  // Removes all.
  std::vector<std::shared_ptr<Task>> TakeAll();

  // From now on nothing waits for max_queue_delay.
  void BeginDrain();

  // When TakeExpired may next have something; kNever if never.
  MonotonicTime NextDeadline() const;

  // When Pop(device) may next have something without a Push, in the past if it
  // may now; kNever if never.
  MonotonicTime NextDue(int device) const;

  // Waiting now; tasks that have ended count until they are dropped. The cost
  // is that of what only `device` can take.
  double cost(int device) const { return waiting_[LineOf(device)].cost; }
  int requests() const { return requests_; }
  size_t bytes() const { return bytes_; }

  static constexpr int kMaxBulkPasses = 8;

 private:
  static constexpr int kPriorities = 2;

  struct Entry;
  struct Lane;
  struct Group;
  using Entries = std::list<Entry>;
  using Lanes = std::list<Lane>;
  using Deadlines = std::multimap<MonotonicTime, Entries::iterator>;
  using Lines = std::array<int, 2>;

  // A task in the queue.
  struct Entry : ClientTurns::Waiter {
    std::shared_ptr<Task> task;
    uint64_t sequence = 0;  // order of arrival
    double flops = 0;
    double cost = 0;
    Deadlines::iterator deadline;  // end(): it has none
    Lanes::iterator lane;
    Entries::iterator self;
  };

  // Tasks of one group, priority and client, oldest first. Never empty between
  // calls.
  struct Lane {
    Group* group;
    int priority;
    ClientTurns::Client* client;
    Entries entries;
  };

  // The tasks of one key. Never empty between calls.
  struct Group {
    BatchKey key;
    uint64_t number;
    // A ring: whose turn it is to fill a batch stands first.
    std::array<Lanes, kPriorities> lanes;
    int requests = 0;
    size_t bytes = 0;
    double flops = 0;
  };

  // What stands in a line.
  struct Waiting {
    int requests = 0;
    double cost = 0;
  };

  // What a batch has taken.
  struct Load {
    size_t bytes = 0;
    double flops = 0;
  };

  static int LineOf(int device) { return device + 1; }  // kAnyDevice: 0
  static Lines LinesOf(int device) {
    return {LineOf(kAnyDevice), LineOf(device)};
  }

  // So much reaches a limit of a batch: no reason to wait for more.
  bool Full(int requests, size_t bytes, double flops) const;
  // Tasks that have ended count too, so that a group of cancelled tasks may
  // cut the wait of a live one short.
  bool Full(const Group& group) const {
    return Full(group.requests, group.bytes, group.flops);
  }
  Batch NewBatch(const BatchKey& key, bool full);
  bool MayHold(const BatchKey& key) const;
  bool MayWait(const BatchKey& key) const {
    return options_.max_queue_delay.count() > 0 || MayHold(key);
  }
  // Until when a task that comes now may wait for others.
  MonotonicTime DueOf(const BatchKey& key, MonotonicTime now, bool hold) const;
  bool Fits(const Entry& entry, const Batch& batch, const Load& load) const;
  Group* FindOrAddGroup(const TaskSpec& spec);
  // Puts a new task, alone in its list, behind its like.
  void Enter(Entries one, Group* group, int priority,
             ClientTurns::Client* client);
  // The task to lead a batch; null if none is due. None that it gives has
  // ended when it is looked at.
  Entry* Leader(int priority, Lines lines, MonotonicTime now);
  Batch Collect(Entry* leader);
  // Moves the group's tasks into `batch`; false: the next one did not fit.
  bool Fill(Group* group, int priority, Batch* batch, Load* load);
  // Takes an entry out, all its traces but its group, and charges its client.
  void Remove(Entry& entry, double cost);
  // The same, with the group, for one that is not served.
  void Drop(Entry& entry);
  // After a change of the group's tasks. May erase it.
  void Settle(Group* group);
  void DropEnded();

  const BatchQueueOptions options_;
  absl::flat_hash_map<BatchKey, std::unique_ptr<Group>> groups_;
  absl::flat_hash_map<std::pair<Group*, ClientTurns::Client*>, Lanes::iterator>
      lanes_;
  std::array<ClientTurns, kPriorities> turns_;
  // Full groups of those that may wait to fill, by priority and line, in order
  // of their number.
  std::array<std::vector<std::map<uint64_t, Group*>>, kPriorities> full_;
  Deadlines deadlines_;  // of the tasks that have one
  // By device: batches led by interactive work while bulk work waited.
  std::vector<int> bulk_passes_;
  std::vector<Waiting> waiting_;  // by line
  int requests_ = 0;
  size_t bytes_ = 0;
  int drop_ended_at_ = 0;  // requests
  bool holding_ = false;   // something pushed since the last Release
  bool draining_ = false;
  uint64_t next_sequence_ = 1;
  uint64_t next_batch_ = 1;
};

}  // namespace gemmd
