// The kernels of the ladder, each in its own file, in the order of this list.
//
// Each Make function gives FAILED_PRECONDITION, with a reason meant for users,
// where the current device cannot run its kernel.

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/sgemm.h"

namespace gemmd {

using MadeKernel = absl::StatusOr<std::unique_ptr<const SgemmKernel>>;

MadeKernel MakeNaiveSgemm(KernelInfo info);
MadeKernel MakeBlockTiledSgemm(KernelInfo info);
MadeKernel MakeConflictFreeSgemm(KernelInfo info);
MadeKernel MakeDoubleBufferedSgemm(KernelInfo info);
MadeKernel MakeSmallTilesSgemm(KernelInfo info);
MadeKernel MakeSkinnySgemm(KernelInfo info);
MadeKernel MakeCublasSgemm(KernelInfo info);

}  // namespace gemmd
