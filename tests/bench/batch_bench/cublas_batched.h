// cuBLAS's batched products, which the project measures itself against and
// never runs: they change bits.

#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/sgemm.h"
#include "tests/bench/kernel_bench/cuda_owner.h"

namespace gemmd {

// Ends the program where cuBLAS lacks a function or refuses a call. Products
// have alpha 1, beta 0 and sizes below 2^31.
class CublasBatched {
 public:
  // Uses `handle`, which outlives this.
  explicit CublasBatched(cublasContext* handle);

  // cublasSgemmStridedBatched: products of one shape, at equal distances.
  void Strided(std::span<const SgemmArgs> products) const;

  // The arrays of cublasSgemmGroupedBatched for some products, each its own
  // group; the pointers are on the device.
  class Groups {
   public:
    explicit Groups(std::span<const SgemmArgs> products);

   private:
    friend class CublasBatched;
    std::vector<int> trans_a_, trans_b_, m_, n_, k_, lda_, ldb_, ldc_, one_;
    std::vector<float> alpha_, beta_;
    DeviceArray<const float*> a_, b_;
    DeviceArray<float*> c_;
  };
  void Grouped(const Groups& groups) const;

 private:
  struct Functions;
  cublasContext* const handle_;
  std::shared_ptr<const Functions> functions_;
};

}  // namespace gemmd
