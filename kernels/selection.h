// Which kernel computes a request. Decided from the request and the device
// alone, never from load, so that equal requests give equal bits.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry.h"
#include "kernels/sgemm.h"

namespace gemmd {

// Picks from `registry` a kernel of `space` for `args`.
//
// `name` is a kernel's name, or "" or "auto": then the best that
// `Supports(args)` and whose precision is at least `precision` (kFp32 is the
// strictest floor; kFp32Emulated also accepts kFp32; kTf32 accepts any). On a
// device the best is the one that registry.table() predicts to be the fastest;
// without a table, the first in an order that a rule gives.
//
// Pointers of `args` may be null here; their alignment is then taken as that of
// the server's own buffers (256 bytes).
//
// Errors: NOT_FOUND for an unknown name; FAILED_PRECONDITION when the named
// kernel cannot run here, is of another space, is below the precision asked
// for, or does not support the request. Both list RunnableKernels.
absl::StatusOr<const SgemmKernel*> SelectKernel(const KernelRegistry& registry,
                                                MemorySpace space,
                                                const SgemmArgs& args,
                                                Precision precision,
                                                absl::string_view name);

// Names of the kernels of `space` that can run here: "reference, openblas".
std::string RunnableKernels(const KernelRegistry& registry, MemorySpace space);

}  // namespace gemmd
