#include <cstdint>

#include "kernels/cuda/cuda_status.h"
#include "server/execute/cuda/segment_copy.h"

namespace gemmd {
namespace {

// From here on one launch is cheaper than the calls it replaces; above it the
// copy engines are, and leave the processors to the products.
constexpr size_t kMinSegmentsForKernel = 4;
constexpr size_t kMaxMeanBytesForKernel = size_t{128} << 10;

constexpr int kThreads = 256;
constexpr size_t kBytesPerCta = size_t{16} << 10;
constexpr int kTableCapacity = 128;

// Segments and the number of each one's first thread block (CTA).
struct SegmentTable {
  int size;
  CopySegment segments[kTableCapacity];
  uint32_t first_cta[kTableCapacity];
};

__device__ int FindSegment(const SegmentTable& table, uint32_t cta) {
  int low = 0;
  int high = table.size;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_cta[middle] <= cta) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads)
    CopyKernel(const __grid_constant__ SegmentTable table) {
  const int index = FindSegment(table, blockIdx.x);
  const CopySegment& segment = table.segments[index];
  const size_t begin = (blockIdx.x - table.first_cta[index]) * kBytesPerCta;
  const size_t end = begin + kBytesPerCta < segment.bytes ? begin + kBytesPerCta
                                                          : segment.bytes;
  const size_t vector_end = end / 16 * 16;
  // All loads before the first store: the way over the bus is long.
  constexpr int kLoads = kBytesPerCta / 16 / kThreads;
  int4 values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const size_t at = begin + (i * kThreads + threadIdx.x) * size_t{16};
    if (at < vector_end) {
      values[i] = *reinterpret_cast<const int4*>(segment.from + at);
    }
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const size_t at = begin + (i * kThreads + threadIdx.x) * size_t{16};
    if (at < vector_end) {
      *reinterpret_cast<int4*>(segment.to + at) = values[i];
    }
  }
  const size_t tail = vector_end + threadIdx.x * size_t{4};
  if (tail < end) {
    *reinterpret_cast<int*>(segment.to + tail) =
        *reinterpret_cast<const int*>(segment.from + tail);
  }
}

absl::Status LaunchTable(const SegmentTable& table, uint32_t ctas,
                         cudaStream_t stream) {
  if (ctas == 0) return absl::OkStatus();
  CopyKernel<<<ctas, kThreads, 0, stream>>>(table);
  return CudaStatus(cudaGetLastError(), "CopyKernel");
}

}  // namespace

absl::Status CopySegments(std::span<const CopySegment> segments,
                          cudaMemcpyKind kind, cudaStream_t stream) {
  size_t bytes = 0;
  for (const CopySegment& segment : segments) bytes += segment.bytes;
  if (segments.size() >= kMinSegmentsForKernel &&
      bytes / segments.size() <= kMaxMeanBytesForKernel) {
    return CopySegmentsByKernel(segments, stream);
  }
  return CopySegmentsByEngine(segments, kind, stream);
}

absl::Status CopySegmentsByEngine(std::span<const CopySegment> segments,
                                  cudaMemcpyKind kind, cudaStream_t stream) {
  for (const CopySegment& segment : segments) {
    if (segment.bytes == 0) continue;
    absl::Status status = CudaStatus(
        cudaMemcpyAsync(segment.to, segment.from, segment.bytes, kind, stream),
        "cudaMemcpyAsync");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CopySegmentsByKernel(std::span<const CopySegment> segments,
                                  cudaStream_t stream) {
  SegmentTable table;
  table.size = 0;
  uint32_t ctas = 0;
  for (const CopySegment& segment : segments) {
    if (segment.bytes == 0) continue;
    if (table.size == kTableCapacity) {
      absl::Status status = LaunchTable(table, ctas, stream);
      if (!status.ok()) return status;
      table.size = 0;
      ctas = 0;
    }
    table.segments[table.size] = segment;
    table.first_cta[table.size] = ctas;
    ++table.size;
    ctas += static_cast<uint32_t>((segment.bytes + kBytesPerCta - 1) /
                                  kBytesPerCta);
  }
  return LaunchTable(table, ctas, stream);
}

}  // namespace gemmd
