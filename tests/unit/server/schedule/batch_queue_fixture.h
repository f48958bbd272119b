// Tasks for a BatchQueue, and what it gives them as.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/schedule/batch_queue.h"
#include "tests/unit/server/schedule/fakes.h"

namespace gemmd {

inline const MonotonicTime kStart{std::chrono::seconds(1000)};

inline MonotonicTime At(int ms) {
  return kStart + std::chrono::milliseconds(ms);
}

class BatchQueueTest : public ::testing::Test {
 protected:
  struct Wish {
    int64_t size = 8;
    Priority priority = Priority::kInteractive;
    MonotonicTime deadline = kNever;
    size_t bytes = 100;
    const SgemmKernel* kernel = nullptr;
    std::string client = "";
    int device = kAnyDevice;
    std::shared_ptr<const StoredMatrix> b = nullptr;
    int64_t rows = 0;  // 0: size
  };

  std::shared_ptr<Task> Make(const Wish& wish) {
    TaskSpec spec;
    spec.shape = {wish.rows > 0 ? wish.rows : wish.size, wish.size, wish.size};
    spec.client = wish.client;
    spec.device = wish.device;
    spec.b.resident = wish.b;
    spec.kernel = wish.kernel != nullptr ? wish.kernel : &kernel_;
    spec.priority = wish.priority;
    spec.deadline = wish.deadline;
    spec.input = *pool_.Allocate(wish.bytes);
    return std::make_shared<Task>(std::move(spec), [](TaskResult) {});
  }

  // Pushes and remembers a task, to name it by its number later.
  absl::Status Push(BatchQueue& queue, const Wish& wish, int ms = 0) {
    std::shared_ptr<Task> task = Make(wish);
    absl::Status status = queue.Push(task, At(ms));
    if (status.ok()) tasks_.push_back(task);
    return status;
  }

  // The numbers of a batch's tasks in order of Push.
  std::vector<int> Numbers(const std::vector<std::shared_ptr<Task>>& tasks) {
    std::vector<int> numbers;
    for (const auto& task : tasks) {
      numbers.push_back(static_cast<int>(
          std::find(tasks_.begin(), tasks_.end(), task) - tasks_.begin()));
    }
    return numbers;
  }
  std::vector<int> Popped(BatchQueue& queue, int ms, int device = 0) {
    return Numbers(queue.Pop(device, At(ms)).tasks);
  }

  FakePool pool_;
  FakeKernel kernel_{"one"};
  FakeKernel other_kernel_{"two"};
  std::vector<std::shared_ptr<Task>> tasks_;
};

}  // namespace gemmd
