// What tasks must have in common to be one batch.

#pragma once

#include <utility>

#include "kernels/sgemm.h"
#include "server/schedule/task.h"

namespace gemmd {

// Follows from the task and its kernel's Fusion alone, never from load, so that
// what can be one launch meets in one place. Parts that need not be equal are
// left at their defaults.
struct BatchKey {
  const SgemmKernel* kernel = nullptr;
  int device = kAnyDevice;
  GemmShape shape;
  const StoredMatrix* b = nullptr;  // its tasks keep it alive
  // Tasks of this key are one launch, else they run back to back on one lease,
  // which still saves the hand-overs between them.
  bool fused = false;

  friend bool operator==(const BatchKey&, const BatchKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const BatchKey& key) {
    return H::combine(std::move(h), key.kernel, key.device, key.shape.m,
                      key.shape.n, key.shape.k, key.shape.transpose_a,
                      key.shape.transpose_b, key.b);
  }
};

// Products over `max_mixed_flops` share a launch with others of their own shape
// alone: a small one would wait for them.
inline BatchKey BatchKeyOf(const TaskSpec& spec, double max_mixed_flops) {
  BatchKey key{.kernel = spec.kernel, .device = spec.device};
  const Fusion fusion = spec.kernel->info().fusion;
  if (fusion == Fusion::kAnyShapes && spec.shape.flops() <= max_mixed_flops) {
    key.fused = true;
    return key;
  }
  key.shape = spec.shape;
  if (fusion == Fusion::kSameB && spec.b.resident != nullptr) {
    key.shape.m = 0;
    key.b = spec.b.resident.get();
  }
  key.fused = fusion == Fusion::kEqualShapes || fusion == Fusion::kAnyShapes ||
              key.b != nullptr;
  return key;
}

}  // namespace gemmd
