// The batching policy written as plainly as it can be, to compare BatchQueue
// with: a list, searched from the front.

#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "server/schedule/batch_queue.h"

namespace gemmd {

class BatchQueueModel {
 public:
  explicit BatchQueueModel(const BatchQueueOptions& options)
      : options_(options) {}

  void Push(std::shared_ptr<Task> task, MonotonicTime now) {
    waiting_.push_back({std::move(task), now});
  }

  // The tasks of the next batch.
  std::vector<Task*> Pop(MonotonicTime now, bool draining) {
    std::erase_if(waiting_, [](const auto& w) { return w.task->ended(); });
    const bool bulk_waits = Any(Priority::kBulk);
    const Priority first = bulk_waits && passes_ >= BatchQueue::kMaxBulkPasses
                               ? Priority::kBulk
                               : Priority::kInteractive;
    for (const Priority priority : {first, Other(first)}) {
      for (const Waiting& leader : waiting_) {
        if (leader.task->spec().priority != priority) continue;
        if (!Due(leader, now, draining)) continue;
        passes_ =
            priority == Priority::kInteractive && bulk_waits ? passes_ + 1 : 0;
        return Take(leader, priority);
      }
    }
    return {};
  }

  std::vector<Task*> TakeExpired(MonotonicTime now) {
    std::vector<Task*> expired;
    std::erase_if(waiting_, [&](const Waiting& w) {
      const bool late = w.task->spec().deadline <= now;
      if (late && !w.task->ended()) expired.push_back(w.task.get());
      return late;
    });
    return expired;
  }

  size_t size() const { return waiting_.size(); }

 private:
  struct Waiting {
    std::shared_ptr<Task> task;
    MonotonicTime enqueued;
  };

  static Priority Other(Priority p) {
    return p == Priority::kBulk ? Priority::kInteractive : Priority::kBulk;
  }
  static bool SameKey(const Task& a, const Task& b) {
    return a.spec().kernel == b.spec().kernel &&
           a.spec().shape == b.spec().shape;
  }
  bool Any(Priority priority) const {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& w) {
      return w.task->spec().priority == priority;
    });
  }

  bool Due(const Waiting& leader, MonotonicTime now, bool draining) const {
    if (draining || leader.enqueued + options_.max_queue_delay <= now) {
      return true;
    }
    int requests = 0;
    size_t bytes = 0;
    double flops = 0;
    for (const Waiting& w : waiting_) {
      if (!SameKey(*w.task, *leader.task)) continue;
      ++requests;
      bytes += w.task->bytes();
      flops += w.task->spec().shape.flops();
    }
    return requests >= options_.max_batch_requests ||
           bytes >= options_.max_batch_bytes ||
           flops >= options_.max_batch_flops;
  }

  std::vector<Task*> Take(const Waiting& leader, Priority own) {
    const std::shared_ptr<Task> first = leader.task;
    std::vector<Task*> batch;
    size_t bytes = 0;
    double flops = 0;
    for (const Priority priority : {own, Other(own)}) {
      for (const Waiting& w : waiting_) {
        const Task& task = *w.task;
        if (task.spec().priority != priority || !SameKey(task, *first)) {
          continue;
        }
        const bool fits =
            batch.empty() ||
            (batch.size() + 1 <= size_t(options_.max_batch_requests) &&
             bytes + task.bytes() <= options_.max_batch_bytes &&
             flops + task.spec().shape.flops() <= options_.max_batch_flops);
        if (!fits) return Removed(batch);
        bytes += task.bytes();
        flops += task.spec().shape.flops();
        batch.push_back(w.task.get());
      }
    }
    return Removed(batch);
  }

  std::vector<Task*> Removed(const std::vector<Task*>& batch) {
    std::erase_if(waiting_, [&](const Waiting& w) {
      return std::find(batch.begin(), batch.end(), w.task.get()) != batch.end();
    });
    return batch;
  }

  const BatchQueueOptions options_;
  std::vector<Waiting> waiting_;
  int passes_ = 0;
};

}  // namespace gemmd
