// Where the conformance suite runs its kernels. One file that defines it is
// linked with the suite: host_machine.cc here, device_machine.cc in tests/gpu.

#pragma once

#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "kernels/sgemm.h"
#include "tests/unit/kernels/problem.h"

namespace gemmd {

// The kernels of this build, made once.
const KernelRegistry& TestRegistry();

// The memory space whose kernels the linked machine runs.
MemorySpace TestSpace();

// Whether a kernel that cannot run here fails the suite rather than being
// skipped.
bool KernelsMustRun();

// Changes the arguments a kernel gets, for instance to null pointers.
using EditArgs = std::function<void(SgemmArgs&)>;

// Gives `kernel` copies of the problems' operands in its own memory space and
// one Launch for all of them. Returns each C with what is around it. The
// problems keep their own. Thread-safe; each call has a stream of its own.
absl::StatusOr<std::vector<Operand>> RunKernel(
    const SgemmKernel& kernel, std::span<Problem* const> problems,
    const EditArgs& edit = {});

}  // namespace gemmd
