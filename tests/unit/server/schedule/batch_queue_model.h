// The batching policy written as plainly as it can be, to compare BatchQueue
// with: lists, searched from the front.

#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/schedule/batch_queue.h"
#include "server/schedule/cost.h"

namespace gemmd {

class BatchQueueModel {
 public:
  BatchQueueModel(const BatchQueueOptions& options, int devices)
      : options_(options), passes_(devices) {}

  void Push(std::shared_ptr<Task> task, MonotonicTime now, bool hold = false) {
    Client& client = ClientOf(*task);
    if (Count(*task, task->spec().client) == 0) {
      client.served = std::max(client.served, turn_[PriorityOf(*task)]);
    }
    Key& key = KeyOf(*task);
    if (key.rings[0].empty() && key.rings[1].empty()) key.born = next_key_++;
    std::deque<std::string>& ring = key.rings[PriorityOf(*task)];
    if (std::find(ring.begin(), ring.end(), task->spec().client) ==
        ring.end()) {
      ring.push_back(task->spec().client);
    }
    const MonotonicTime due = options_.max_queue_delay.count() > 0
                                  ? now + options_.max_queue_delay
                              : hold && MayHold(*task) ? now + options_.max_hold
                                                       : kAlways;
    waiting_.push_back({std::move(task), due});
  }

  void Release() {
    if (options_.max_queue_delay.count() > 0) return;
    for (Waiting& w : waiting_) w.due = kAlways;
  }

  // The tasks of the next batch.
  std::vector<Task*> Pop(int device, MonotonicTime now) {
    const bool bulk_waits =
        std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
          return PriorityOf(*w.task) == 1 && CanRun(*w.task, device);
        });
    const int first =
        bulk_waits && passes_[device] >= BatchQueue::kMaxBulkPasses ? 1 : 0;
    for (const int priority : {first, 1 - first}) {
      const Task* const leader = Leader(priority, device, now);
      if (leader == nullptr) continue;
      passes_[device] = priority == 0 && bulk_waits ? passes_[device] + 1 : 0;
      return Take(*leader, priority);
    }
    return {};
  }

  std::vector<Task*> TakeExpired(MonotonicTime now) {
    std::vector<Task*> expired;
    for (size_t i = 0; i < waiting_.size();) {
      if (waiting_[i].task->spec().deadline > now) {
        ++i;
        continue;
      }
      if (!waiting_[i].task->ended()) expired.push_back(waiting_[i].task.get());
      Remove(waiting_[i].task.get());
    }
    return expired;
  }

  void BeginDrain() { draining_ = true; }

  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    std::shared_ptr<Task> task;
    MonotonicTime due;
  };
  struct Client {
    double served = 0;
  };
  struct Key {
    std::shared_ptr<Task> like;
    int born;  // when the first of its tasks came that wait
    // By priority: clients with tasks; whose turn it is stands first.
    std::deque<std::string> rings[2];
  };

  static int PriorityOf(const Task& task) {
    return task.spec().priority == Priority::kBulk ? 1 : 0;
  }
  static bool CanRun(const Task& task, int device) {
    return task.spec().device == kAnyDevice || task.spec().device == device;
  }
  bool SameKey(const Task& a, const Task& b) const {
    return BatchKeyOf(a.spec(), options_.max_mixed_flops) ==
           BatchKeyOf(b.spec(), options_.max_mixed_flops);
  }
  Client& ClientOf(const Task& task) {
    return clients_[PriorityOf(task)][task.spec().client];
  }
  Key& KeyOf(const Task& like) {
    for (Key& key : keys_) {
      if (SameKey(*key.like, like)) return key;
    }
    return keys_.emplace_back(
        Key{std::make_shared<Task>(CopyOfKey(like), nullptr), 0});
  }
  std::deque<std::string>& RingOf(const Task& like, int priority) {
    return KeyOf(like).rings[priority];
  }
  static TaskSpec CopyOfKey(const Task& task) {
    TaskSpec spec;
    spec.kernel = task.spec().kernel;
    spec.shape = task.spec().shape;
    spec.device = task.spec().device;
    spec.b.resident = task.spec().b.resident;
    return spec;
  }

  // Tasks of a client at the priority of `like`.
  int Count(const Task& like, const std::string& client) const {
    return static_cast<int>(
        std::count_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
          return PriorityOf(*w.task) == PriorityOf(like) &&
                 w.task->spec().client == client;
        }));
  }

  bool MayHold(const Task& task) const {
    const BatchKey key = BatchKeyOf(task.spec(), options_.max_mixed_flops);
    return options_.max_queue_delay.count() == 0 &&
           options_.max_hold.count() > 0 && key.fused && key.b != nullptr;
  }
  // So are those before it in its line.
  bool IsDue(const Waiting& last, MonotonicTime now) const {
    for (const Waiting& w : waiting_) {
      const TaskSpec& spec = w.task->spec();
      const bool same_line = PriorityOf(*w.task) == PriorityOf(*last.task) &&
                             spec.client == last.task->spec().client &&
                             spec.device == last.task->spec().device;
      if (same_line && w.due > now && !draining_) return false;
      if (&w == &last) return true;
    }
    return false;
  }
  bool IsFull(const Task& like) const {
    int requests = 0;
    size_t bytes = 0;
    double flops = 0;
    for (const Waiting& w : waiting_) {
      if (!SameKey(*w.task, like)) continue;
      ++requests;
      bytes += w.task->bytes();
      flops += w.task->spec().shape.flops();
    }
    return requests >= options_.max_batch_requests ||
           bytes >= options_.max_batch_bytes ||
           flops >= options_.max_batch_flops;
  }

  const Task* Leader(int priority, int device, MonotonicTime now) {
    while (true) {
      const Waiting* best = nullptr;
      for (const Waiting& w : waiting_) {  // oldest first
        if (PriorityOf(*w.task) != priority || !CanRun(*w.task, device) ||
            !IsDue(w, now)) {
          continue;
        }
        if (best == nullptr ||
            ClientOf(*w.task).served < ClientOf(*best->task).served) {
          best = &w;
        }
      }
      if (best == nullptr) break;
      if (!best->task->ended()) {
        double& turn = turn_[priority];
        turn = std::max(turn, ClientOf(*best->task).served);
        return best->task.get();
      }
      Remove(best->task.get());
    }
    for (const int line : {kAnyDevice, device}) {
      if (const Task* const next = FirstOfFull(priority, line)) {
        if (!next->ended()) return next;
        Remove(next);
        return Leader(priority, device,
                      now);  // what stood behind it may be due
      }
    }
    return nullptr;
  }

  // Of the full keys of a device, the first born that has tasks of the
  // priority; in it, whose turn it is.
  const Task* FirstOfFull(int priority, int device) {
    const Key* best = nullptr;
    for (const Key& key : keys_) {
      if (options_.max_queue_delay.count() == 0 && !MayHold(*key.like))
        continue;
      if (key.like->spec().device == device && !key.rings[priority].empty() &&
          IsFull(*key.like) && (best == nullptr || key.born < best->born)) {
        best = &key;
      }
    }
    if (best == nullptr) return nullptr;
    for (const Waiting& w : waiting_) {
      if (PriorityOf(*w.task) == priority && SameKey(*w.task, *best->like) &&
          w.task->spec().client == best->rings[priority].front()) {
        return w.task.get();
      }
    }
    return nullptr;
  }

  std::vector<Task*> Take(const Task& leader, int own) {
    std::vector<Task*> batch;
    size_t bytes = 0;
    double flops = 0;
    const Task key(CopyOfKey(leader), nullptr);
    std::deque<std::string>& ring = RingOf(key, own);
    const std::string first = leader.spec().client;
    ring.erase(std::find(ring.begin(), ring.end(), first));
    ring.push_front(first);
    for (const int priority : {own, 1 - own}) {
      std::deque<std::string>& lanes = RingOf(key, priority);
      while (!lanes.empty()) {
        const auto next = std::find_if(
            waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
              return PriorityOf(*w.task) == priority && SameKey(*w.task, key) &&
                     w.task->spec().client == lanes.front();
            });
        const std::shared_ptr<Task> task = next->task;
        if (task->ended() && !batch.empty()) {
          Remove(task.get());
          continue;
        }
        const bool fits =
            batch.empty() ||
            (batch.size() + 1 <= size_t(options_.max_batch_requests) &&
             bytes + task->bytes() <= options_.max_batch_bytes &&
             flops + task->spec().shape.flops() <= options_.max_batch_flops);
        if (!fits) return batch;
        bytes += task->bytes();
        flops += task->spec().shape.flops();
        batch.push_back(task.get());
        ClientOf(*task).served += CostOf(*task);
        lanes.push_back(lanes.front());
        lanes.pop_front();
        Remove(task.get());
      }
    }
    return batch;
  }

  void Remove(const Task* task) {
    const auto it =
        std::find_if(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& w) { return w.task.get() == task; });
    const std::shared_ptr<Task> kept = it->task;
    waiting_.erase(it);
    const int priority = PriorityOf(*kept);
    const bool has_more =
        std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
          return PriorityOf(*w.task) == priority && SameKey(*w.task, *kept) &&
                 w.task->spec().client == kept->spec().client;
        });
    std::deque<std::string>& ring = RingOf(*kept, priority);
    if (!has_more) {
      ring.erase(std::find(ring.begin(), ring.end(), kept->spec().client));
    }
    const bool any = std::any_of(
        waiting_.begin(), waiting_.end(),
        [&](const Waiting& w) { return PriorityOf(*w.task) == priority; });
    if (!any) {  // nobody waits for anybody
      clients_[priority].clear();
      turn_[priority] = 0;
    }
  }

  const BatchQueueOptions options_;
  std::deque<Waiting> waiting_;  // oldest first
  std::map<std::string, Client> clients_[2];
  std::deque<Key> keys_;
  int next_key_ = 1;
  double turn_[2] = {0, 0};
  std::vector<int> passes_;  // by device
  bool draining_ = false;
};

}  // namespace gemmd
