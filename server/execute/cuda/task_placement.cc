#include "server/execute/cuda/task_placement.h"

#include <algorithm>
#include <limits>

#include "kernels/cuda/cuda_status.h"
#include "server/execute/range_allocator.h"

namespace gemmd {
namespace {

// cudaMemcpy2DAsync takes no more.
constexpr size_t kMaxPitch = std::numeric_limits<int32_t>::max();

size_t PackedBytes(int64_t rows, int64_t cols) {
  return static_cast<size_t>(rows) * static_cast<size_t>(cols) * sizeof(float);
}

size_t BytesA(const GemmShape& s) {
  return PackedBytes(StoredRowsA(s), StoredColsA(s));
}
size_t BytesB(const GemmShape& s) {
  return PackedBytes(StoredRowsB(s), StoredColsB(s));
}
size_t BytesC(const GemmShape& s) { return PackedBytes(s.m, s.n); }

bool ReadsInputs(const TaskSpec& spec) {
  return spec.alpha != 0 && spec.shape.k > 0;
}

std::byte* Take(size_t bytes, std::byte*& next) {
  std::byte* const place = next;
  next += RangeAllocator::RoundUp(bytes);
  return place;
}

// Of the operand's three places, the one where the kernel finds it.
const float* Find(const TaskOperand& operand, const TaskSpec& spec, int device,
                  const std::byte* input, const std::byte* shared) {
  const std::byte* place = nullptr;
  if (operand.resident != nullptr) {
    place = operand.resident->data(device) + operand.resident_offset;
  } else if (operand.shared) {
    place = shared;
  } else if (spec.input.size() > 0) {
    place = input + operand.offset;
  }
  return reinterpret_cast<const float*>(place);
}

int64_t DeviceLeadingDimension(const TaskOperand& operand, int64_t packed) {
  if (operand.resident != nullptr) return operand.resident->cols();
  return operand.shared ? packed : operand.leading_dimension;
}

// `from` may have padding, `to` has none.
RowsCopy Pack(std::byte* to, const std::byte* from, int64_t leading_dimension,
              int64_t rows, int64_t cols, cudaMemcpyKind kind) {
  const size_t row_bytes = static_cast<size_t>(cols) * sizeof(float);
  const auto pitch = static_cast<size_t>(std::max(leading_dimension, cols));
  return {to,        row_bytes,
          from,      pitch * sizeof(float),
          row_bytes, static_cast<size_t>(rows),
          kind};
}

void AddC(const TaskSpec& spec, int device, const TaskPlacement& placement,
          TaskCopies& copies) {
  const GemmShape& s = spec.shape;
  auto* const to = reinterpret_cast<std::byte*>(placement.c);
  const bool output_staged =
      spec.output_resident == nullptr && !spec.output_shared;
  if (spec.c.resident != nullptr) {
    copies.rows.push_back(
        Pack(to, spec.c.resident->data(device) + spec.c.resident_offset, s.n,
             s.m, s.n, cudaMemcpyDeviceToDevice));
  } else if (spec.c.shared) {
    copies.rows.push_back(Pack(to, spec.c.shared.data, spec.c.leading_dimension,
                               s.m, s.n, cudaMemcpyHostToDevice));
  } else if (output_staged) {
    copies.segments.push_back({to, spec.output.data(), spec.output.size()});
  } else {
    copies.rows.push_back(Pack(to, placement.input + spec.c.offset,
                               spec.c.leading_dimension, s.m, s.n,
                               cudaMemcpyDeviceToDevice));
  }
}

absl::Status EnqueueRows(const RowsCopy& copy, cudaStream_t stream) {
  if (copy.rows == 0 || copy.row_bytes == 0) return absl::OkStatus();
  const bool packed =
      copy.to_pitch == copy.row_bytes && copy.from_pitch == copy.row_bytes;
  if (packed || copy.rows == 1) {
    return CudaStatus(
        cudaMemcpyAsync(copy.to, copy.from, copy.row_bytes * copy.rows,
                        copy.kind, stream),
        "cudaMemcpyAsync");
  }
  if (std::max(copy.to_pitch, copy.from_pitch) <= kMaxPitch) {
    return CudaStatus(
        cudaMemcpy2DAsync(copy.to, copy.to_pitch, copy.from, copy.from_pitch,
                          copy.row_bytes, copy.rows, copy.kind, stream),
        "cudaMemcpy2DAsync");
  }
  for (size_t i = 0; i < copy.rows; ++i) {
    absl::Status status =
        CudaStatus(cudaMemcpyAsync(copy.to + i * copy.to_pitch,
                                   copy.from + i * copy.from_pitch,
                                   copy.row_bytes, copy.kind, stream),
                   "cudaMemcpyAsync");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

size_t TaskCopies::bytes(cudaMemcpyKind rows_kind) const {
  size_t sum = 0;
  for (const CopySegment& copy : segments) sum += copy.bytes;
  for (const RowsCopy& copy : rows) {
    if (copy.kind == rows_kind) sum += copy.row_bytes * copy.rows;
  }
  return sum;
}

size_t DeviceBytes(const Task& task) {
  const TaskSpec& spec = task.spec();
  size_t bytes = task.bytes() + 2 * RangeAllocator::kAlignment;
  if (spec.a.shared) bytes += RangeAllocator::RoundUp(BytesA(spec.shape));
  if (spec.b.shared) bytes += RangeAllocator::RoundUp(BytesB(spec.shape));
  if (spec.output_shared) {
    bytes += RangeAllocator::RoundUp(BytesC(spec.shape));
  }
  return bytes;
}

TaskPlacement PlaceOnDevice(const TaskSpec& spec, int device,
                            std::byte*& next) {
  TaskPlacement placement;
  placement.input = Take(spec.input.size(), next);
  if (spec.a.shared) placement.shared_a = Take(BytesA(spec.shape), next);
  if (spec.b.shared) placement.shared_b = Take(BytesB(spec.shape), next);
  placement.a = Find(spec.a, spec, device, placement.input, placement.shared_a);
  placement.b = Find(spec.b, spec, device, placement.input, placement.shared_b);
  placement.c = reinterpret_cast<float*>(
      spec.output_resident != nullptr
          ? spec.output_resident->data(device) + spec.output_offset
          : Take(BytesC(spec.shape), next));
  return placement;
}

SgemmArgs DeviceArgs(const TaskSpec& spec, const TaskPlacement& placement) {
  SgemmArgs args;
  args.shape = spec.shape;
  args.alpha = spec.alpha;
  args.beta = spec.beta;
  args.a = placement.a;
  args.lda = DeviceLeadingDimension(spec.a, StoredColsA(spec.shape));
  args.b = placement.b;
  args.ldb = DeviceLeadingDimension(spec.b, StoredColsB(spec.shape));
  args.c = placement.c;
  args.ldc = spec.shape.n;
  return args;
}

void AddCopiesIn(const TaskSpec& spec, int device,
                 const TaskPlacement& placement, TaskCopies& copies) {
  if (spec.input.size() > 0) {
    copies.segments.push_back(
        {placement.input, spec.input.data(), spec.input.size()});
  }
  const GemmShape& s = spec.shape;
  if (spec.a.shared && ReadsInputs(spec)) {
    copies.rows.push_back(Pack(placement.shared_a, spec.a.shared.data,
                               spec.a.leading_dimension, StoredRowsA(s),
                               StoredColsA(s), cudaMemcpyHostToDevice));
  }
  if (spec.b.shared && ReadsInputs(spec)) {
    copies.rows.push_back(Pack(placement.shared_b, spec.b.shared.data,
                               spec.b.leading_dimension, StoredRowsB(s),
                               StoredColsB(s), cudaMemcpyHostToDevice));
  }
  if (spec.beta != 0) AddC(spec, device, placement, copies);
}

void AddCopiesOut(const TaskSpec& spec, const TaskPlacement& placement,
                  TaskCopies& copies) {
  if (spec.output_resident != nullptr) return;
  auto* const from = reinterpret_cast<const std::byte*>(placement.c);
  if (!spec.output_shared) {
    copies.segments.push_back({spec.output.data(), from, spec.output.size()});
    return;
  }
  const GemmShape& s = spec.shape;
  const size_t row_bytes = static_cast<size_t>(s.n) * sizeof(float);
  const auto pitch =
      static_cast<size_t>(std::max(spec.output_leading_dimension, s.n));
  copies.rows.push_back({spec.output_shared.data, pitch * sizeof(float), from,
                         row_bytes, row_bytes, static_cast<size_t>(s.m),
                         cudaMemcpyDeviceToHost});
}

absl::Status Enqueue(const TaskCopies& copies, cudaMemcpyKind segments_kind,
                     cudaStream_t stream) {
  absl::Status status = CopySegments(copies.segments, segments_kind, stream);
  for (const RowsCopy& copy : copies.rows) {
    if (!status.ok()) return status;
    status = EnqueueRows(copy, stream);
  }
  return status;
}

}  // namespace gemmd
