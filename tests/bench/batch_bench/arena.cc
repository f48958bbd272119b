#include "tests/bench/batch_bench/arena.h"

#include <algorithm>
#include <random>

namespace gemmd {
namespace {

constexpr int64_t kPattern = (int64_t{1} << 22) + 64 * 1009;  // floats
constexpr int64_t kAlignment = 64;

}  // namespace

Arena::Arena(int64_t floats)
    : size_(floats), memory_(AllocateOnDevice<float>(floats)) {}

void Arena::Reset(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> pattern(kPattern);
  for (float& x : pattern) {
    x = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31f;
  }
  for (int64_t at = 0; at < size_; at += kPattern) {
    const int64_t count = std::min(kPattern, size_ - at);
    Check(at == 0 ? cudaMemcpy(memory_.get(), pattern.data(),
                               count * sizeof(float), cudaMemcpyHostToDevice)
                  : cudaMemcpy(memory_.get() + at, memory_.get(),
                               count * sizeof(float), cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
  }
  used_ = 0;
}

float* Arena::Take(int64_t floats) {
  if (floats > left()) {
    std::fprintf(stderr, "batch_bench: the arena is too small\n");
    std::exit(1);
  }
  float* const piece = memory_.get() + used_;
  used_ = std::min(size_,
                   used_ + (floats + kAlignment - 1) / kAlignment * kAlignment);
  return piece;
}

SgemmArgs Arena::TakeProduct(const GemmShape& shape) {
  SgemmArgs args;
  args.shape = shape;
  args.a = Take(shape.m * shape.k);
  args.lda = StoredColsA(shape);
  args.b = Take(shape.k * shape.n);
  args.ldb = StoredColsB(shape);
  args.c = Take(shape.m * shape.n);
  args.ldc = shape.n;
  return args;
}

}  // namespace gemmd
