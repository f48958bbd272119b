#include "server/schedule/batch_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "server/schedule/cost.h"

namespace gemmd {
namespace {

// Looking for tasks that have ended costs a walk over the queue: not before
// there are so many tasks, nor before they have doubled since the last walk.
constexpr int kFewRequests = 256;

absl::Status LateError() {
  return absl::DeadlineExceededError(
      "the deadline passed before the request was queued");
}

int PriorityOf(const Task& task) {
  return task.spec().priority == Priority::kBulk ? 1 : 0;
}

}  // namespace

BatchQueue::BatchQueue(const BatchQueueOptions& options, int devices)
    : options_(options),
      turns_{ClientTurns(devices + 1), ClientTurns(devices + 1)},
      bulk_passes_(devices),
      waiting_(devices + 1),
      drop_ended_at_(kFewRequests) {
  for (auto& full : full_) full.resize(devices + 1);
}

absl::Status BatchQueue::Push(std::shared_ptr<Task> task, MonotonicTime now,
                              bool hold) {
  const TaskSpec& spec = task->spec();
  if (spec.deadline <= now) return LateError();
  if (requests_ >= drop_ended_at_) DropEnded();

  const int priority = PriorityOf(*task);
  Group* const group = FindOrAddGroup(spec);
  Entries one(1);
  Entry& entry = one.front();
  entry.sequence = next_sequence_++;
  entry.flops = spec.shape.flops();
  entry.cost = CostOf(*task);
  entry.self = one.begin();
  entry.deadline = spec.deadline == kNever
                       ? deadlines_.end()
                       : deadlines_.emplace(spec.deadline, entry.self);
  entry.task = std::move(task);
  const MonotonicTime due = DueOf(group->key, now, hold);
  holding_ = holding_ || (hold && MayHold(group->key));
  ClientTurns::Client* const client = turns_[priority].Add(
      spec.client, LineOf(spec.device), entry.sequence, due, &entry);
  Enter(std::move(one), group, priority, client);
  Settle(group);
  return absl::OkStatus();
}

MonotonicTime BatchQueue::DueOf(const BatchKey& key, MonotonicTime now,
                                bool hold) const {
  if (options_.max_queue_delay.count() > 0) {
    return now + options_.max_queue_delay;
  }
  return hold && MayHold(key) ? now + options_.max_hold : kAlways;
}

bool BatchQueue::MayHold(const BatchKey& key) const {
  return options_.max_queue_delay.count() == 0 &&
         options_.max_hold.count() > 0 && key.fused && key.b != nullptr;
}

absl::StatusOr<Batch> BatchQueue::Pass(std::shared_ptr<Task> task, int device,
                                       MonotonicTime now) {
  const TaskSpec& spec = task->spec();
  if (spec.deadline <= now) return LateError();
  bulk_passes_[device] = 0;
  Batch batch = NewBatch(BatchKeyOf(spec, options_.max_mixed_flops),
                         Full(1, task->bytes(), spec.shape.flops()));
  batch.tasks.push_back(std::move(task));
  return batch;
}

Batch BatchQueue::NewBatch(const BatchKey& key, bool full) {
  Batch batch;
  batch.id = next_batch_++;
  batch.kernel = key.kernel;
  batch.fused = key.fused;
  batch.reason = full                               ? FlushReason::kFull
                 : draining_                        ? FlushReason::kDrain
                 : options_.max_queue_delay.count() ? FlushReason::kTimer
                                                    : FlushReason::kIdle;
  return batch;
}

bool BatchQueue::Release() {
  if (!std::exchange(holding_, false)) return false;
  for (ClientTurns& turns : turns_) turns.MakeDue(next_sequence_ - 1);
  return true;
}

BatchQueue::Group* BatchQueue::FindOrAddGroup(const TaskSpec& spec) {
  const BatchKey key = BatchKeyOf(spec, options_.max_mixed_flops);
  std::unique_ptr<Group>& group = groups_[key];
  if (group == nullptr) {
    group = std::make_unique<Group>();
    group->key = key;
    group->number = next_sequence_;
  }
  return group.get();
}

void BatchQueue::Enter(Entries one, Group* group, int priority,
                       ClientTurns::Client* client) {
  const auto [found, is_new] = lanes_.try_emplace({group, client});
  if (is_new) {
    Lanes& lanes = group->lanes[priority];
    lanes.push_back({group, priority, client, {}});
    found->second = std::prev(lanes.end());
  }
  Entry& entry = one.front();
  entry.lane = found->second;
  const size_t bytes = entry.task->bytes();
  ++requests_;
  bytes_ += bytes;
  Waiting& waiting = waiting_[LineOf(group->key.device)];
  ++waiting.requests;
  waiting.cost += entry.cost;
  ++group->requests;
  group->bytes += bytes;
  group->flops += entry.flops;
  Entries& entries = found->second->entries;
  entries.splice(entries.end(), one);
}

Batch BatchQueue::Pop(int device, MonotonicTime now) {
  if (requests_ == 0) return {};
  const Lines lines = LinesOf(device);
  const bool bulk_waits =
      !turns_[1].empty(lines[0]) || !turns_[1].empty(lines[1]);
  int& passes = bulk_passes_[device];
  const int first = bulk_waits && passes >= kMaxBulkPasses ? 1 : 0;
  for (const int priority : {first, 1 - first}) {
    Entry* const leader = Leader(priority, lines, now);
    if (leader == nullptr) continue;
    passes = priority == 0 && bulk_waits ? passes + 1 : 0;
    return Collect(leader);
  }
  return {};
}

BatchQueue::Entry* BatchQueue::Leader(int priority, Lines lines,
                                      MonotonicTime now) {
  ClientTurns& turns = turns_[priority];
  while (auto* const first = static_cast<Entry*>(turns.First(lines, now))) {
    if (!first->task->ended()) {
      turns.TakeTurn(first->lane->client);
      return first;
    }
    Drop(*first);
  }
  for (const int line : lines) {
    const auto& full = full_[priority][line];
    if (full.empty()) continue;
    Lanes& lanes = full.begin()->second->lanes[priority];
    Entry& next = lanes.front().entries.front();
    if (!next.task->ended()) return &next;
    Drop(next);
    // What stood behind it may be due.
    return Leader(priority, lines, now);
  }
  return nullptr;
}

Batch BatchQueue::Collect(Entry* leader) {
  const Lanes::iterator lane = leader->lane;
  Group* const group = lane->group;
  const int priority = lane->priority;
  Lanes& lanes = group->lanes[priority];
  lanes.splice(lanes.begin(), lanes, lane);
  Batch batch = NewBatch(group->key, Full(*group));
  Load load;
  const bool cut = !Fill(group, priority, &batch, &load) ||
                   !Fill(group, 1 - priority, &batch, &load);
  if (cut) batch.reason = FlushReason::kFull;
  Settle(group);
  return batch;
}

bool BatchQueue::Fill(Group* group, int priority, Batch* batch, Load* load) {
  Lanes& lanes = group->lanes[priority];
  while (!lanes.empty()) {
    const Lanes::iterator lane = lanes.begin();
    Entry& next = lane->entries.front();
    // The leader had not ended a moment ago; a batch has a task.
    if (next.task->ended() && !batch->tasks.empty()) {
      Remove(next, /*cost=*/0);
      continue;
    }
    if (!Fits(next, *batch, *load)) return false;
    load->bytes += next.task->bytes();
    load->flops += next.flops;
    batch->tasks.push_back(next.task);
    lanes.splice(lanes.end(), lanes, lane);
    Remove(next, next.cost);
  }
  return true;
}

std::vector<std::shared_ptr<Task>> BatchQueue::TakeExpired(MonotonicTime now) {
  std::vector<std::shared_ptr<Task>> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    Entry& entry = *deadlines_.begin()->second;
    if (!entry.task->ended()) expired.push_back(entry.task);
    Drop(entry);
  }
  return expired;
}

std::vector<std::shared_ptr<Task>> BatchQueue::TakeBoundTo(int device) {
  std::vector<std::shared_ptr<Task>> taken;
  std::vector<Group*> groups;
  for (const auto& [key, group] : groups_) {
    if (key.device == device) groups.push_back(group.get());
  }
  for (Group* const group : groups) {
    for (Lanes& lanes : group->lanes) {
      while (!lanes.empty()) {
        Entry& entry = lanes.front().entries.front();
        if (!entry.task->ended()) taken.push_back(entry.task);
        Remove(entry, /*cost=*/0);
      }
    }
    Settle(group);
  }
  return taken;
}

std::vector<std::shared_ptr<Task>> BatchQueue::TakeAll() {
  std::vector<std::shared_ptr<Task>> all = TakeBoundTo(kAnyDevice);
  for (int device = 0; device < static_cast<int>(bulk_passes_.size());
       ++device) {
    std::vector<std::shared_ptr<Task>> bound = TakeBoundTo(device);
    all.insert(all.end(), bound.begin(), bound.end());
  }
  return all;
}

void BatchQueue::BeginDrain() {
  draining_ = true;
  for (ClientTurns& turns : turns_) {
    turns.MakeDue(std::numeric_limits<uint64_t>::max());
  }
}

MonotonicTime BatchQueue::NextDeadline() const {
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

MonotonicTime BatchQueue::NextDue(int device) const {
  MonotonicTime next = kNever;
  for (int priority = 0; priority < kPriorities; ++priority) {
    for (const int line : LinesOf(device)) {
      if (!full_[priority][line].empty()) return kAlways;
      next = std::min(next, turns_[priority].NextDue(line));
    }
  }
  return next;
}

bool BatchQueue::Full(int requests, size_t bytes, double flops) const {
  return requests >= options_.max_batch_requests ||
         bytes >= options_.max_batch_bytes || flops >= options_.max_batch_flops;
}

bool BatchQueue::Fits(const Entry& entry, const Batch& batch,
                      const Load& load) const {
  return batch.tasks.empty() ||
         (batch.tasks.size() <
              static_cast<size_t>(options_.max_batch_requests) &&
          load.bytes + entry.task->bytes() <= options_.max_batch_bytes &&
          load.flops + entry.flops <= options_.max_batch_flops);
}

void BatchQueue::Remove(Entry& entry, double cost) {
  const Lanes::iterator lane = entry.lane;
  Group* const group = lane->group;
  const size_t bytes = entry.task->bytes();
  --requests_;
  bytes_ -= bytes;
  Waiting& waiting = waiting_[LineOf(group->key.device)];
  --waiting.requests;
  // Exactly 0 when there is nothing: sums of doubles drift.
  waiting.cost = waiting.requests == 0 ? 0 : waiting.cost - entry.cost;
  --group->requests;
  group->bytes -= bytes;
  group->flops -= entry.flops;
  if (entry.deadline != deadlines_.end()) deadlines_.erase(entry.deadline);
  ClientTurns::Client* const client = lane->client;
  const uint64_t sequence = entry.sequence;
  const int priority = lane->priority;
  lane->entries.erase(entry.self);
  if (lane->entries.empty()) {
    lanes_.erase({group, client});
    group->lanes[priority].erase(lane);
  }
  turns_[priority].Remove(client, LineOf(group->key.device), sequence, cost);
}

void BatchQueue::Drop(Entry& entry) {
  Group* const group = entry.lane->group;
  Remove(entry, /*cost=*/0);
  Settle(group);
}

void BatchQueue::Settle(Group* group) {
  if (MayWait(group->key)) {
    const int line = LineOf(group->key.device);
    const bool full = Full(*group);
    for (int priority = 0; priority < kPriorities; ++priority) {
      if (full && !group->lanes[priority].empty()) {
        full_[priority][line].emplace(group->number, group);
      } else {
        full_[priority][line].erase(group->number);
      }
    }
  }
  if (group->requests == 0) groups_.erase(BatchKey(group->key));
}

void BatchQueue::DropEnded() {
  std::vector<Entry*> ended;
  for (const auto& [of, lane] : lanes_) {
    for (Entry& entry : lane->entries) {
      if (entry.task->ended()) ended.push_back(&entry);
    }
  }
  for (Entry* const entry : ended) Drop(*entry);
  drop_ended_at_ = std::max(kFewRequests, 2 * requests_);
}

}  // namespace gemmd
