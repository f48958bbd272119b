// Random numbers on the device to take operands from.

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sgemm.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {

// Device memory of uniform numbers in [-1, 1], handed out piece by piece, each
// on a 256-byte boundary.
class Arena {
 public:
  explicit Arena(int64_t floats);

  // Fills everything anew and takes all pieces back.
  void Reset(uint32_t seed);

  float* Take(int64_t floats);

  // Operands of packed matrices for a product of `shape`.
  SgemmArgs TakeProduct(const GemmShape& shape);

  int64_t left() const { return size_ - used_; }

 private:
  const int64_t size_;
  int64_t used_ = 0;
  DeviceArray<float> memory_;
};

}  // namespace gemmd
