// The contract between what multiplies and who asks for it: the shape of a
// product, its operands, and the interface that every kernel implements.
//
// This folder knows no wire format, no thread and no metric. A kernel here is
// told where the numbers are and on what to run; it is never told how busy the
// process is, so its result cannot depend on that.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// CUDA's and cuBLAS's own handle types, declared so that this header needs
// neither: cudaStream_t is CUstream_st*, cublasHandle_t is cublasContext*.
struct CUstream_st;
struct cublasContext;

namespace gemmd {

// The arithmetic a kernel does; a request asks for a floor (see
// gemmd.v1.Precision for the promise behind each).
enum class Precision {
  kFp32,          // IEEE binary32 FMA throughout
  kFp32Emulated,  // tensor cores, with the error bound of kFp32
  kTf32,          // TF32 tensor cores
};

// Where a kernel's operands live.
enum class MemorySpace {
  kHost,    // ordinary memory
  kDevice,  // memory of the CUDA device that is current at launch
};

// Which problems of one Launch become one launch on the device; the others are
// computed back to back.
enum class Fusion {
  kNone,         // no two
  kEqualShapes,  // those of equal shape
  kSameB,        // those that read the same B: their rows are stacked
  kAnyShapes,    // all
};

// C [m, n] = alpha * op(A) [m, k] * op(B) [k, n] + beta * C. Any size may be 0.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // A is stored [k, m]
  bool transpose_b = false;  // B is stored [n, k]

  friend bool operator==(const GemmShape&, const GemmShape&) = default;

  // 2 m n k, as a double since it passes 2^63 for shapes of valid sizes.
  double flops() const { return 2.0 * m * n * k; }
};

// One product. Row-major: X(i, j) is x[i * ldx + j] of the matrix as stored;
// leading dimensions are in elements and at least the stored row's length.
// Pointers are 4-byte aligned at least, in the kernel's memory space.
//
// BLAS semantics: beta == 0 never reads C (it may hold NaN); alpha == 0 or
// k == 0 never reads A or B (they may be null); m == 0 or n == 0 does nothing.
// C overlaps neither A nor B.
struct SgemmArgs {
  GemmShape shape;
  float alpha = 1.0f;
  float beta = 0.0f;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
};

// Rows and columns of the stored operands, before any transpose.
inline int64_t StoredRowsA(const GemmShape& s) {
  return s.transpose_a ? s.k : s.m;
}
inline int64_t StoredColsA(const GemmShape& s) {
  return s.transpose_a ? s.m : s.k;
}
inline int64_t StoredRowsB(const GemmShape& s) {
  return s.transpose_b ? s.n : s.k;
}
inline int64_t StoredColsB(const GemmShape& s) {
  return s.transpose_b ? s.k : s.n;
}

// What a launch runs on. Owns nothing. A host kernel needs none of it.
struct LaunchContext {
  CUstream_st* stream = nullptr;    // of the current device
  cublasContext* cublas = nullptr;  // bound to `stream`, its workspace set;
                                    // null where cuBLAS is not there
  void* workspace = nullptr;        // 256-byte aligned, of this stream alone
  size_t workspace_bytes = 0;       // at least WorkspaceBytes(problems)
};

class PreparedSgemm;

// What is always true of a kernel.
struct KernelInfo {
  std::string name;         // lower_snake_case, unique in the registry
  std::string description;  // one line: its idea and what it is for
  Precision precision = Precision::kFp32;
  MemorySpace space = MemorySpace::kHost;

  // The bits of a problem's result do not depend on the other problems of the
  // same Launch, on their number or on its place among them. Only such a kernel
  // may be given several requests at once; proven by tests/unit/kernels.
  bool batch_invariant = false;

  // What makes a batch worth forming: the server collects requests by it. Other
  // than kNone it goes with batch_invariant alone.
  Fusion fusion = Fusion::kNone;
};

// A way to compute C = alpha * op(A) * op(B) + beta * C.
//
// Thread-safety: const methods may be called from any thread at once, with
// different LaunchContexts.
class SgemmKernel {
 public:
  virtual ~SgemmKernel() = default;

  const KernelInfo& info() const { return info_; }

  // OK when this kernel computes such a product on the present device; else
  // FAILED_PRECONDITION with the reason, in words meant for a client. Looks at
  // shapes, leading dimensions and alignment, never at the numbers.
  virtual absl::Status Supports(const SgemmArgs& args) const = 0;

  // Device memory that Launch(problems) needs besides its operands; 0 for
  // most. Follows from the shapes alone.
  virtual size_t WorkspaceBytes(std::span<const SgemmArgs> problems) const;

  // Computes every problem. They may be one, equal or mixed in shape; none
  // overlaps another's C.
  //
  // Needs:   Supports(p) is OK for each.
  // Order:   a device kernel is asynchronous on context.stream, and OK means
  //          enqueued, not done; a host kernel returns when it is done. The
  //          span and what it points to (not the matrices) may go after return.
  // Errors:  INTERNAL if a launch fails, naming the call that failed.
  virtual absl::Status Launch(std::span<const SgemmArgs> problems,
                              const LaunchContext& context) const = 0;

  // How to keep what this kernel makes of an operand first
  // (prepared_sgemm.h); null where it makes nothing.
  virtual const PreparedSgemm* prepared() const { return nullptr; }

 protected:
  explicit SgemmKernel(KernelInfo info) : info_(std::move(info)) {}
  SgemmKernel(const SgemmKernel&) = delete;
  SgemmKernel& operator=(const SgemmKernel&) = delete;

 private:
  const KernelInfo info_;
};

// OK when sizes, leading dimensions and pointers of `args` hang together as
// described at SgemmArgs; else INVALID_ARGUMENT naming what was got and wanted.
absl::Status ValidateArgs(const SgemmArgs& args);

}  // namespace gemmd
