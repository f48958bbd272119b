// The kernels for Hopper (compute capability 9.0), each in its own file.
//
// Each Make function gives FAILED_PRECONDITION, with a reason meant for users,
// where the current device cannot run its kernel.

#pragma once

#include "kernels/cuda/ladder.h"

namespace gemmd {

// Strict FP32: stream-K over 128 x 128 tiles, or tiles shared by a cluster.
MadeKernel MakeSm90FfmaSgemm(KernelInfo info);

// FP32 emulated on BF16 tensor cores, with FP32's error and range.
MadeKernel MakeSm90Bf16x6Sgemm(KernelInfo info);

}  // namespace gemmd
