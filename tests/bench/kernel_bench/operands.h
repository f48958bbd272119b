// The operands of a case on the device, in several sets.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/bench/kernel_bench/bench_case.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {

// Sets of operands, uniform in [-1, 1], every matrix packed and 256-byte
// aligned. So many that going round them passes twice the L2 cache: no launch
// finds its operands there.
class Operands {
 public:
  Operands(const BenchCase& c, uint32_t seed);

  int sets() const { return static_cast<int>(sets_.size()); }
  // The products of one launch.
  std::span<const SgemmArgs> set(int i) const { return sets_[i]; }

  // Makes every C of the first set NaN.
  void PoisonFirstSet();

 private:
  int64_t floats_ = 0;  // of one product's C
  DeviceArray<float> memory_;
  std::vector<std::vector<SgemmArgs>> sets_;
};

}  // namespace gemmd
