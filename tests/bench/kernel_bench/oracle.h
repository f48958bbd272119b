// The float64 product on the device, and how far a kernel's result is from it.

#pragma once

#include <span>

#include "kernels/sgemm.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {

struct Errors {
  double frobenius = 0;  // |C - exact| / |exact|
  // The largest error of an element as a share of the bound of PRECISION_FP32
  // (kernels/reference.h); NaN counts as infinite. Above 1 it is wrong.
  double worst_of_bound = 0;
};

// Float64 products of the same operands, made once for all kernels. alpha is 1
// and beta 0.
class Oracle {
 public:
  explicit Oracle(std::span<const SgemmArgs> problems);

  // What is wrong with the C of the problems as they are now.
  Errors Compare() const;

 private:
  std::span<const SgemmArgs> problems_;
  DeviceArray<double> value_;
  DeviceArray<double> magnitude_;
};

}  // namespace gemmd
