#include "server/schedule/batch_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

// Looking for tasks that have ended costs a walk over the queue; a full queue
// pays it at most this often.
constexpr MonotonicDuration kDropInterval = std::chrono::milliseconds(1);

}  // namespace

BatchQueue::BatchQueue(const BatchQueueOptions& options) : options_(options) {}

absl::Status BatchQueue::Push(std::shared_ptr<Task> task, MonotonicTime now) {
  const TaskSpec& spec = task->spec();
  if (spec.deadline <= now) {
    return absl::DeadlineExceededError(
        "the deadline passed before the request was queued");
  }
  const size_t bytes = task->bytes();
  if (absl::Status status = CheckRoom(bytes, now); !status.ok()) return status;

  if (requests_ == 0) drain_rate_.Restart(now);
  Group* const group = FindOrAddGroup(spec);
  const int priority = Index(*task);
  const uint64_t sequence = next_sequence_++;
  const MonotonicTime deadline = spec.deadline;
  Entries& entries = group->entries[priority];
  entries.push_back({std::move(task), group, priority, bytes, sequence, now,
                     deadlines_.end()});
  if (deadline != kNever) {
    entries.back().deadline =
        deadlines_.emplace(deadline, std::prev(entries.end()));
  }
  if (entries.size() == 1) heads_[priority].emplace(sequence, group);
  Count(group, 1, bytes);
  return absl::OkStatus();
}

Batch BatchQueue::Pop(MonotonicTime now, bool draining) {
  Batch batch;
  for (int priority = 0; priority < kPriorities; ++priority) {
    DropEndedLeaders(priority);
  }
  if (requests_ == 0) return batch;
  const bool bulk_waits = !heads_[1].empty();
  const int first = bulk_waits && bulk_passes_ >= kMaxBulkPasses ? 1 : 0;
  int leader = first;
  if (!Lead(first, now, draining, &batch)) {
    leader = 1 - first;
    if (!Lead(leader, now, draining, &batch)) return batch;
  }
  bulk_passes_ = leader == 0 && bulk_waits ? bulk_passes_ + 1 : 0;
  batch.id = next_batch_++;
  drain_rate_.Note(static_cast<double>(batch.tasks.size()), now);
  return batch;
}

bool BatchQueue::Lead(int priority, MonotonicTime now, bool draining,
                      Batch* batch) {
  // By sequence and not by iterator: filling may erase the group.
  Heads& heads = heads_[priority];
  for (auto head = heads.begin(); head != heads.end();) {
    const uint64_t sequence = head->first;
    Group* const group = head->second;
    if (Due(group->entries[priority].front(), now, draining)) {
      batch->kernel = group->key.kernel;
      size_t bytes = 0;
      const bool full = Full(*group);
      const bool cut = !Fill(group, priority, now, batch, &bytes) ||
                       !Fill(group, 1 - priority, now, batch, &bytes);
      EraseIfEmpty(group);
      if (!batch->tasks.empty()) {
        batch->reason = full || cut                        ? FlushReason::kFull
                        : draining                         ? FlushReason::kDrain
                        : options_.max_queue_delay.count() ? FlushReason::kTimer
                                                           : FlushReason::kIdle;
        return true;
      }
      // All it held had ended or is past its deadline.
    } else if (full_groups_ == 0) {
      return false;  // heads are in order of age: no later one is due
    }
    head = heads.upper_bound(sequence);
  }
  return false;
}

bool BatchQueue::Fill(Group* group, int priority, MonotonicTime now,
                      Batch* batch, size_t* batch_bytes) {
  Entries& entries = group->entries[priority];
  const double flops = group->key.shape.flops();
  const auto fits = [&](size_t bytes) {
    const size_t requests = batch->tasks.size() + 1;
    return requests == 1 ||
           (requests <= static_cast<size_t>(options_.max_batch_requests) &&
            *batch_bytes + bytes <= options_.max_batch_bytes &&
            static_cast<double>(requests) * flops <= options_.max_batch_flops);
  };
  for (auto it = entries.begin(); it != entries.end();) {
    if (it->task->ended()) {
      it = Remove(it);
      continue;
    }
    if (it->deadline != deadlines_.end() && it->deadline->first <= now) {
      ++it;
      continue;
    }
    if (!fits(it->bytes)) return false;
    *batch_bytes += it->bytes;
    batch->tasks.push_back(std::move(it->task));
    it = Remove(it);
  }
  return true;
}

std::vector<std::shared_ptr<Task>> BatchQueue::TakeExpired(MonotonicTime now) {
  std::vector<std::shared_ptr<Task>> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Entries::iterator it = deadlines_.begin()->second;
    Group* const group = it->group;
    if (!it->task->ended()) expired.push_back(it->task);
    Remove(it);
    EraseIfEmpty(group);
  }
  drain_rate_.Note(static_cast<double>(expired.size()), now);
  return expired;
}

std::vector<std::shared_ptr<Task>> BatchQueue::TakeAll() {
  std::vector<std::shared_ptr<Task>> all;
  all.reserve(requests_);
  for (auto& [key, group] : groups_) {
    for (Entries& entries : group->entries) {
      for (Entry& entry : entries) {
        if (!entry.task->ended()) all.push_back(std::move(entry.task));
      }
    }
  }
  groups_.clear();
  for (Heads& heads : heads_) heads.clear();
  deadlines_.clear();
  requests_ = 0;
  bytes_ = 0;
  full_groups_ = 0;
  return all;
}

MonotonicTime BatchQueue::NextEvent(bool stream_free) const {
  MonotonicTime next = kNever;
  if (!deadlines_.empty()) next = deadlines_.begin()->first;
  if (!stream_free) return next;
  for (int priority = 0; priority < kPriorities; ++priority) {
    const Heads& heads = heads_[priority];
    if (heads.empty()) continue;
    const Entry& oldest = heads.begin()->second->entries[priority].front();
    const MonotonicDuration delay =
        full_groups_ > 0 ? MonotonicDuration{0} : options_.max_queue_delay;
    next = std::min(next, oldest.enqueued + delay);
  }
  return next;
}

bool BatchQueue::Full(const Group& group) const {
  return group.requests >= options_.max_batch_requests ||
         group.bytes >= options_.max_batch_bytes ||
         group.requests * group.key.shape.flops() >= options_.max_batch_flops;
}

bool BatchQueue::Due(const Entry& entry, MonotonicTime now,
                     bool draining) const {
  return draining || entry.enqueued + options_.max_queue_delay <= now ||
         Full(*entry.group);
}

absl::Status BatchQueue::CheckRoom(size_t bytes, MonotonicTime now) {
  if (bytes > options_.max_bytes) {
    return LimitError(
        "--queue-max-bytes", options_.max_bytes,
        absl::StrCat("the request holds ", bytes,
                     " bytes; the queue takes at most ", options_.max_bytes,
                     " in all (--queue-max-bytes)"));
  }
  const auto full = [&] {
    return requests_ >= options_.max_requests ||
           bytes > options_.max_bytes - bytes_;
  };
  if (full() && now - last_drop_ >= kDropInterval) {
    last_drop_ = now;
    DropEnded();
  }
  if (!full()) return absl::OkStatus();
  const absl::Duration retry =
      absl::FromChrono(drain_rate_.RetryDelay(requests_));
  if (requests_ >= options_.max_requests) {
    return QuotaError(
        "queue-max-requests",
        absl::StrCat(requests_, " requests wait; the queue takes ",
                     options_.max_requests, " at most (--queue-max-requests)"),
        retry);
  }
  return QuotaError(
      "queue-max-bytes",
      absl::StrCat("the request holds ", bytes, " bytes and ", bytes_,
                   " wait already; the queue takes ", options_.max_bytes,
                   " at most (--queue-max-bytes)"),
      retry);
}

void BatchQueue::DropEnded() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    Group* const group = it++->second.get();
    for (Entries& entries : group->entries) {
      for (auto entry = entries.begin(); entry != entries.end();) {
        entry = entry->task->ended() ? Remove(entry) : std::next(entry);
      }
    }
    EraseIfEmpty(group);
  }
}

void BatchQueue::DropEndedLeaders(int priority) {
  Heads& heads = heads_[priority];
  while (!heads.empty()) {
    Group* const group = heads.begin()->second;
    const Entries::iterator oldest = group->entries[priority].begin();
    if (!oldest->task->ended()) return;
    Remove(oldest);
    EraseIfEmpty(group);
  }
}

BatchQueue::Group* BatchQueue::FindOrAddGroup(const TaskSpec& spec) {
  std::unique_ptr<Group>& group = groups_[Key{spec.kernel, spec.shape}];
  if (group == nullptr) {
    group = std::make_unique<Group>();
    group->key = {spec.kernel, spec.shape};
  }
  return group.get();
}

void BatchQueue::Count(Group* group, int requests, size_t bytes) {
  const bool was_full = Full(*group);
  group->requests += requests;
  requests_ += requests;
  if (requests > 0) {
    group->bytes += bytes;
    bytes_ += bytes;
  } else {
    group->bytes -= bytes;
    bytes_ -= bytes;
  }
  full_groups_ += Full(*group) - was_full;
}

BatchQueue::Entries::iterator BatchQueue::Remove(Entries::iterator it) {
  Group* const group = it->group;
  const int priority = it->priority;
  Entries& entries = group->entries[priority];
  if (it->deadline != deadlines_.end()) deadlines_.erase(it->deadline);
  Count(group, -1, it->bytes);
  const bool was_head = it == entries.begin();
  if (was_head) heads_[priority].erase(it->sequence);
  const Entries::iterator next = entries.erase(it);
  if (was_head && !entries.empty()) {
    heads_[priority].emplace(entries.front().sequence, group);
  }
  return next;
}

void BatchQueue::EraseIfEmpty(Group* group) {
  if (group->requests == 0) groups_.erase(Key(group->key));
}

}  // namespace gemmd
