// Which of the sm90 FP32 kernels a product runs on, and in how many slices of
// k. Decided from the shape and the device alone.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gemmd {

enum class FfmaKind {
  kStreamK,       // tiles of 128 x 128, dealt to two workers an SM
  kCluster128,    // tiles of 128 x 128, each for a cluster of `slices` blocks
  kCluster96,     // tiles of 96 x 96, likewise
  kCluster64,     // of 64 x 64
  kClusterLight,  // the same with half the warps, for a short k
  kCluster32,     // of 32 x 32, each warp with a part of k
  // As the last three, of operands that the copy engine does not take.
  kCopy64,
  kCopyLight,
  kCopy32,
};
constexpr int kFfmaKinds = 9;
inline bool CopiesOperands(FfmaKind kind) { return kind >= FfmaKind::kCopy64; }

struct FfmaPlan {
  FfmaKind kind;
  int slices = 1;

  friend bool operator==(const FfmaPlan&, const FfmaPlan&) = default;
};

constexpr int kMaxFfmaSlices = 8;  // the largest portable cluster

// What the plan knows of the device.
struct FfmaDevice {
  int sm_count = 0;
  // clusters[kind][s]: how many clusters of s blocks of a kind run at once. An
  // H200 has room for fewer than its SMs / s, since a cluster lies in one group
  // of SMs.
  std::array<std::array<int, kMaxFfmaSlices + 1>, kFfmaKinds> clusters = {};

  int Clusters(FfmaKind kind, int slices) const {
    return clusters[static_cast<size_t>(kind)][static_cast<size_t>(slices)];
  }
};

// What the plan wants to know of a product.
struct FfmaProduct {
  int64_t m;  // m, n, k >= 1
  int64_t n;
  int64_t k;
  // Elements of the operands that the copy engine does not take, 0 where it
  // takes both: a plan that does not copy them has to bring them into form
  // first.
  int64_t unfit_elements = 0;
  int unfit_operands = 0;
};

FfmaPlan PlanFfma(const FfmaProduct& product, const FfmaDevice& device);

// Microseconds that the plan should take, as PlanFfma reckons.
double FfmaTime(const FfmaProduct& product, FfmaPlan plan,
                const FfmaDevice& device);

}  // namespace gemmd
