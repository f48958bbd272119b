// The ways to compute what `skinny` promises, beside each other for the bench
// that compares them (tests/bench/skinny_ways).

#pragma once

#include "kernels/cuda/ladder.h"

namespace gemmd {

// Each sums k in an order of its own, whatever the rows: one way's bits differ
// from another's, so a program has one.
enum class SkinnyWay {
  kBlockRing,  // a block's warps share a ring and a barrier each 32 of k
  kWarpRings,  // each warp has a ring of its own
};

// MakeSkinnySgemm takes this.
constexpr SkinnyWay kSkinnyWay = SkinnyWay::kWarpRings;

MadeKernel MakeSkinnySgemm(KernelInfo info, SkinnyWay way);

}  // namespace gemmd
