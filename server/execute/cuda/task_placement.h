// Where a task's numbers lie on the device, and the copies that bring them
// there and back.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/sgemm.h"
#include "server/execute/cuda/segment_copy.h"
#include "server/schedule/task.h"

namespace gemmd {

// A kernel finds every operand 256-byte aligned, and packed unless it was
// staged with padding: so what it computes does not depend on the way by which
// the numbers came (I6).
//
//   staged     the input block is copied as it is
//   shared     its rows are copied into device memory, without their padding
//   resident   stays where it is
//
// The product is made in the memory of a resident output, else in device memory
// from where it is copied to staging or shared memory. A C that is read is
// copied to that place first, on the device where it is there already.
struct TaskPlacement {
  std::byte* input = nullptr;  // the input block's copy
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  // Of shared operands, where they go; null: not shared or not read.
  std::byte* shared_a = nullptr;
  std::byte* shared_b = nullptr;
};

// Rows from one place to another, each with its own distance between rows.
struct RowsCopy {
  std::byte* to;
  size_t to_pitch;  // bytes
  const std::byte* from;
  size_t from_pitch;
  size_t row_bytes;
  size_t rows;
  cudaMemcpyKind kind;
};

// `segments` first: `rows` may read what they bring.
struct TaskCopies {
  std::vector<CopySegment> segments;
  std::vector<RowsCopy> rows;

  size_t bytes(cudaMemcpyKind rows_kind) const;
};

// Device memory that the task needs, at most. Looks at nothing that a
// cancellation may take meanwhile.
size_t DeviceBytes(const Task& task);

// Takes its places from `next` on, at most DeviceBytes, and moves it.
TaskPlacement PlaceOnDevice(const TaskSpec& spec, int device, std::byte*& next);

// The product as the kernel gets it; without `placement`, its pointers are
// null, which is all that a workspace depends on.
SgemmArgs DeviceArgs(const TaskSpec& spec, const TaskPlacement& placement);

void AddCopiesIn(const TaskSpec& spec, int device,
                 const TaskPlacement& placement, TaskCopies& copies);
void AddCopiesOut(const TaskSpec& spec, const TaskPlacement& placement,
                  TaskCopies& copies);

// Enqueues them on `stream`; INTERNAL, naming the call that failed.
absl::Status Enqueue(const TaskCopies& copies, cudaMemcpyKind segments_kind,
                     cudaStream_t stream);

}  // namespace gemmd
