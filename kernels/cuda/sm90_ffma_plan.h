// Which of the sm90 FP32 kernels a product runs on, and in how many slices of
// k. Decided from the shape and the device alone.

#pragma once

#include <array>
#include <cstdint>

namespace gemmd {

enum class FfmaKind {
  kStreamK,       // tiles of 128 x 128, dealt to two workers an SM
  kCluster128,    // tiles of 128 x 128, each for a cluster of `slices` blocks
  kCluster64,     // tiles of 64 x 64, likewise
  kClusterLight,  // the same with half the warps, for a short k
};

struct FfmaPlan {
  FfmaKind kind;
  int slices = 1;

  friend bool operator==(const FfmaPlan&, const FfmaPlan&) = default;
};

constexpr int kMaxFfmaSlices = 8;  // the largest portable cluster

// What the plan knows of the device.
struct FfmaDevice {
  int sm_count = 0;
  // clusters[s]: how many clusters of s blocks run at once, a block an SM; an
  // H200 has room for fewer than sm_count / s, since a cluster lies in one
  // group of SMs.
  std::array<int, kMaxFfmaSlices + 1> clusters = {};
};

// m, n, k >= 1.
FfmaPlan PlanFfma(int64_t m, int64_t n, int64_t k, const FfmaDevice& device);

}  // namespace gemmd
