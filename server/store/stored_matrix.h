// A matrix's numbers on the devices.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "server/execute/resident_memory.h"
#include "server/mutex.h"
#include "server/store/operand_form.h"

namespace gemmd {

// The numbers of one matrix, packed row-major (the leading dimension is cols),
// on one or more devices. Once published under an id they never change: what
// writes to an id (an output, an accumulation) makes a new StoredMatrix and
// puts it in the place of the old one, which lives until its last user lets go.
// So a product may read and replace the same id, and a deletion, an expiry or
// an eviction never takes numbers from under anybody.
//
// Shared by std::shared_ptr; the number of users is its count. Thread-safe.
class StoredMatrix {
 public:
  // rows * cols * 4 bytes must not overflow and be at most memory->size().
  StoredMatrix(int64_t rows, int64_t cols,
               std::unique_ptr<ResidentMemory> memory);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t bytes() const;  // of the numbers, on one device

  // The device it was made on.
  int home() const { return home_; }

  // Its numbers on a device; null where that device has none. Lives as long as
  // the matrix.
  const ResidentMemory* memory(int device) const ABSL_LOCKS_EXCLUDED(mu_);
  std::byte* data(int device) const ABSL_LOCKS_EXCLUDED(mu_);

  // Adds the numbers on another device, copied already.
  void AddCopy(std::unique_ptr<ResidentMemory> memory) ABSL_LOCKS_EXCLUDED(mu_);

  // Devices that have it, in ascending order.
  std::vector<int> devices() const ABSL_LOCKS_EXCLUDED(mu_);

  // What it holds on all devices, forms included.
  size_t device_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

  // What kernels have made of it. It changes none of its numbers, so whoever
  // can multiply the matrix can have its forms kept.

  // Null: there is none.
  std::shared_ptr<OperandForm> form(const OperandFormKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps `form`, of this matrix on a device that has it, and gives it back; or
  // the one that was there before, of the same key.
  std::shared_ptr<OperandForm> KeepForm(std::shared_ptr<OperandForm> form) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Forms that nobody else holds, of `device` alone where one is given: their
  // bytes, and giving them up. What is given up is handed to the caller, who
  // lets go of it where no lock is held.
  size_t idle_form_bytes(std::optional<int> device) const
      ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::shared_ptr<OperandForm>> TakeIdleForms(
      std::optional<int> device) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const int64_t rows_;
  const int64_t cols_;
  const int home_;
  mutable Mutex mu_;
  std::vector<std::unique_ptr<ResidentMemory>> copies_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<std::shared_ptr<OperandForm>> forms_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
