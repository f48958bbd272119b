// Many small copies as one launch.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "absl/status/status.h"

namespace gemmd {

// `bytes` from `from` to `to`: pinned host memory or memory of the present
// device, each 16-byte aligned; bytes is a multiple of 4.
struct CopySegment {
  std::byte* to;
  const std::byte* from;
  size_t bytes;
};

// Copies every segment in the order of `stream`: a few or large ones with the
// copy engines, many small ones with a kernel that reads and writes pinned
// memory over the bus itself, since each call of a copy costs the host
// microseconds. INTERNAL, naming the call that failed.
absl::Status CopySegments(std::span<const CopySegment> segments,
                          cudaMemcpyKind kind, cudaStream_t stream);

// The two ways, for tests and measurements; CopySegments picks.
absl::Status CopySegmentsByEngine(std::span<const CopySegment> segments,
                                  cudaMemcpyKind kind, cudaStream_t stream);
absl::Status CopySegmentsByKernel(std::span<const CopySegment> segments,
                                  cudaStream_t stream);

}  // namespace gemmd
