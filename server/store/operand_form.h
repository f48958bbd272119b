// What a kernel has made of a resident matrix, to be used again.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/prepared_sgemm.h"
#include "server/execute/resident_memory.h"

namespace gemmd {

// Of which matrix's forms it is one.
struct OperandFormKey {
  const PreparedSgemm* kernel = nullptr;  // outlives the form
  KDirection k = KDirection::kAlongRows;
  int device = 0;

  friend bool operator==(const OperandFormKey&,
                         const OperandFormKey&) = default;
};

// Memory beside a matrix's numbers, on the same device, for what
// PreparedSgemm::Prepare makes of them. As the matrix never changes, neither
// does its form once it is there:
//
//   empty --BeginFill--> being filled --EndFill(true)--> ready
//     ^--------------------EndFill(false)---'
//
// Shared by std::shared_ptr, by its matrix and by the products that use it: one
// that nobody but the matrix holds can be given up. Thread-safe.
class OperandForm {
 public:
  // `memory` has kernel.PreparedBytes.
  OperandForm(const PreparedSgemm& kernel, KDirection k,
              std::unique_ptr<ResidentMemory> memory)
      : key_{&kernel, k, memory->device()}, memory_(std::move(memory)) {}

  const OperandFormKey& key() const { return key_; }
  std::byte* data() const { return memory_->data(); }
  size_t bytes() const { return memory_->size(); }

  // True for one caller, who fills it on a stream and calls EndFill once the
  // device is done with that, whether it went well or not. Until then nobody
  // else may touch it.
  bool BeginFill() {
    State empty = State::kEmpty;
    return state_.compare_exchange_strong(empty, State::kBeingFilled,
                                          std::memory_order_acq_rel);
  }
  void EndFill(bool filled) {
    state_.store(filled ? State::kReady : State::kEmpty,
                 std::memory_order_release);
  }

  // Whoever sees it may read it, on any stream of its device.
  bool ready() const {
    return state_.load(std::memory_order_acquire) == State::kReady;
  }

 private:
  enum class State { kEmpty, kBeingFilled, kReady };

  const OperandFormKey key_;
  const std::unique_ptr<ResidentMemory> memory_;
  // Orders what its filler saw of the device before what its readers do.
  std::atomic<State> state_{State::kEmpty};
};

}  // namespace gemmd
