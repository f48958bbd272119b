#include "kernels/cuda/table_sgemm.h"

#include <cuda_runtime.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"

namespace gemmd {
namespace {

// Kernels count tiles along k, 8 deep at least, in 31 bits.
constexpr int64_t kMaxK = int64_t{1} << 34;
constexpr int64_t kMaxGridX = std::numeric_limits<int32_t>::max();

int64_t CeilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0); }

// 0 where CTAs past 63 bits would be needed, which no memory could hold.
int64_t CountTiles(const TableFunctions& f, const GemmShape& s) {
  int64_t tiles;
  const bool overflow = __builtin_mul_overflow(CeilDiv(s.m, f.tile_m),
                                               CeilDiv(s.n, f.tile_n), &tiles);
  return overflow ? std::numeric_limits<int64_t>::max() : tiles;
}

bool IsAligned(const float* x, int64_t ld) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && ld % 4 == 0;
}

// Collects problems of one variant and launches them when the table is full.
class TableLauncher {
 public:
  TableLauncher(const TableFunctions& functions, int variant,
                CUstream_st* stream)
      : functions_(functions), variant_(variant), stream_(stream) {
    table_.size = 0;
  }

  absl::Status Add(const SgemmArgs& args) {
    const int64_t tiles = CountTiles(functions_, args.shape);
    if (tiles == 0) return absl::OkStatus();
    if (table_.size == kTableCapacity || tiles_ + tiles > kMaxGridX) {
      absl::Status status = Launch();
      if (!status.ok()) return status;
    }
    const GemmShape& s = args.shape;
    const bool has_product = args.alpha != 0 && s.k > 0;
    table_.problems[table_.size++] = {
        .a = args.a,
        .b = args.b,
        .c = args.c,
        .lda = args.lda,
        .ldb = args.ldb,
        .ldc = args.ldc,
        .m = s.m,
        .n = s.n,
        .k = has_product ? s.k : 0,
        .alpha = has_product ? args.alpha : 0,
        .beta = args.beta,
        .first_tile = static_cast<uint32_t>(tiles_),
        .tiles_n = static_cast<uint32_t>(CeilDiv(s.n, functions_.tile_n))};
    tiles_ += tiles;
    return absl::OkStatus();
  }

  // Launches what was added since the last launch.
  absl::Status Launch() {
    if (table_.size == 0) return absl::OkStatus();
    const auto& functions =
        table_.size == 1 ? functions_.single : functions_.table;
    ProblemTable<1> single{table_.size, {table_.problems[0]}};
    void* parameters[] = {table_.size == 1 ? static_cast<void*>(&single)
                                           : static_cast<void*>(&table_)};
    const cudaError_t error = cudaLaunchKernel(
        functions[variant_], dim3(static_cast<unsigned>(tiles_)),
        dim3(functions_.block_x, functions_.block_y), parameters, 0, stream_);
    table_.size = 0;
    tiles_ = 0;
    absl::Status status = CudaStatus(error, "cudaLaunchKernel");
    status.Update(CudaStatus(cudaPeekAtLastError(), "after cudaLaunchKernel"));
    return status;
  }

 private:
  const TableFunctions& functions_;
  const int variant_;
  CUstream_st* const stream_;
  int64_t tiles_ = 0;
  ProblemTable<kTableCapacity> table_;
};

class TableSgemm final : public SgemmKernel {
 public:
  TableSgemm(KernelInfo info, const TableFunctions& functions)
      : SgemmKernel(std::move(info)), functions_(functions) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    if (args.shape.m == 0 || args.shape.n == 0) return absl::OkStatus();
    if (args.shape.k > kMaxK) {
      return absl::FailedPreconditionError(absl::StrCat(
          info().name, " takes k up to ", kMaxK, ", got ", args.shape.k));
    }
    const int64_t tiles = CountTiles(functions_, args.shape);
    if (tiles <= kMaxGridX) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(info().name, " computes C in tiles of ", functions_.tile_m,
                     " x ", functions_.tile_n, ", at most ", kMaxGridX, "; ",
                     args.shape.m, " x ", args.shape.n, " are ", tiles));
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (int variant = 0; variant < kVariants; ++variant) {
      TableLauncher launcher(functions_, variant, context.stream);
      for (const SgemmArgs& args : problems) {
        if (VariantOf(args).index() != variant) continue;
        absl::Status status = launcher.Add(args);
        if (!status.ok()) return status;
      }
      absl::Status status = launcher.Launch();
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  const TableFunctions functions_;
};

}  // namespace

absl::Status CheckKernelRuns(const void* function) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, function);
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();  // or the next launch would report it again
  if (error != cudaErrorNoKernelImageForDevice &&
      error != cudaErrorInvalidDeviceFunction) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the CUDA device does not answer: ", cudaGetErrorString(error)));
  }
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return absl::FailedPreconditionError(absl::StrCat(
      "this build has no code for the device's compute capability ", major, ".",
      minor));
}

SgemmVariant VariantOf(const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  // The sizes along which four neighbours of A, of B and of C lie.
  const bool whole = (s.transpose_a ? s.m : s.k) % 4 == 0 &&
                     (s.transpose_b ? s.k : s.n) % 4 == 0 && s.n % 4 == 0;
  const bool vector = whole && IsAligned(args.a, args.lda) &&
                      IsAligned(args.b, args.ldb) &&
                      IsAligned(args.c, args.ldc);
  return {s.transpose_a, s.transpose_b, vector};
}

absl::StatusOr<std::unique_ptr<const SgemmKernel>> MakeTableSgemm(
    KernelInfo info, const TableFunctions& functions) {
  absl::Status runs = CheckKernelRuns(functions.single[0]);
  if (!runs.ok()) return runs;
  return std::make_unique<const TableSgemm>(std::move(info), functions);
}

}  // namespace gemmd
