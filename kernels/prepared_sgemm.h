// Products of operands made ready once: for a matrix that stays on the device
// and is multiplied again and again, by a kernel that first brings its operands
// into another form.
//
//   const PreparedSgemm* prepared = kernel.prepared();         // may be null
//   const KDirection k = KDirectionOfB(shape);
//   void* form = allocate(prepared->PreparedBytes(rows, cols, k));
//   prepared->Prepare(b, ldb, rows, cols, k, form, stream);    // once
//   prepared->Launch(args, {.b = form}, context);              // often

#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/sgemm.h"

namespace gemmd {

// How k runs through a matrix as stored: all that a form depends on besides the
// matrix. One form therefore serves A as stored and B transposed, the other A
// transposed and B as stored.
enum class KDirection {
  kAlongRows,     // an element's neighbour in its row is the next k
  kAlongColumns,  // the one below it
};
inline KDirection KDirectionOfA(const GemmShape& s) {
  return s.transpose_a ? KDirection::kAlongColumns : KDirection::kAlongRows;
}
inline KDirection KDirectionOfB(const GemmShape& s) {
  return s.transpose_b ? KDirection::kAlongRows : KDirection::kAlongColumns;
}

// The forms of a product's operands, as Prepare wrote them; null: there is
// none, and Launch makes it in its workspace.
struct PreparedOperands {
  const void* a = nullptr;
  const void* b = nullptr;
};

// What a kernel offers that can keep the form of an operand.
//
// Thread-safety: const methods may be called from any thread at once.
class PreparedSgemm {
 public:
  virtual ~PreparedSgemm() = default;

  // Whether Launch({args}) would use forms: not where nothing is multiplied, or
  // by another kernel. Looks at the shape and alpha alone.
  virtual bool UsesForms(const SgemmArgs& args) const = 0;

  // Bytes of device memory that the form of a [rows, cols] matrix takes.
  virtual size_t PreparedBytes(int64_t rows, int64_t cols,
                               KDirection k) const = 0;

  // Writes the form of `x` to `form`, which has PreparedBytes, aligned to 256.
  // Valid as long as `x` does not change. Asynchronous on `stream`; INTERNAL if
  // a launch fails.
  virtual absl::Status Prepare(const float* x, int64_t ld, int64_t rows,
                               int64_t cols, KDirection k, void* form,
                               CUstream_st* stream) const = 0;

  // Device memory that Launch needs besides; no more than the kernel's own
  // WorkspaceBytes({args}).
  virtual size_t WorkspaceBytes(const SgemmArgs& args,
                                const PreparedOperands& operands) const = 0;

  // The kernel's Launch({args}), with the same bits, from the forms there are.
  // A and B themselves must be there too: a form says on the device, when it is
  // used, whether it can stand for its matrix.
  //
  // Needs:  the kernel's Supports(args) is OK; each form was prepared from
  //         args' operand, in the direction of its use, before on this stream
  //         or by work that this stream has waited for.
  // Errors: INTERNAL if a launch fails or the workspace is too small.
  virtual absl::Status Launch(const SgemmArgs& args,
                              const PreparedOperands& operands,
                              const LaunchContext& context) const = 0;
};

}  // namespace gemmd
