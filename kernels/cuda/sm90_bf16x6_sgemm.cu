// sm90_bf16x6: FP32 products on BF16 tensor cores. Both operands are split into
// three BF16 matrices each, stored along k (bf16_slices.h), and multiplied by
// sm90_bf16x6_kernels.cuh. What BF16 cannot hold (NaN, infinity, numbers next
// to either end of FP32's range) shows while splitting; the product is then
// computed by sm90_ffma instead, decided on the device. So is one with a short
// k, where the tensor cores' truncated sums would err more than FP32's few
// roundings.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/bf16_slices.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/pack_matrix.h"
#include "kernels/cuda/sm90_bf16x6_kernels.cuh"
#include "kernels/cuda/sm90_ffma.h"
#include "kernels/cuda/sm90_kernels.h"
#include "kernels/cuda/sm90_tensor_map.h"
#include "kernels/prepared_sgemm.h"

namespace gemmd {
namespace {

using Tile = sm90::Bf16x6Tile;

// From here on the error is below FP32's on every kind of input tried
// (tests/gpu/sm90_bf16x6_test.cc); with few large values among many tiny ones,
// whose sums FP32 hardly rounds, not before.
constexpr int64_t kShortestK = 1024;

int64_t CeilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0); }
int64_t RoundUp(int64_t x, int64_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}

int CeilLog2(int64_t x) {
  int log = 0;
  while ((int64_t{1} << log) < x) ++log;
  return log;
}

// A split matrix in memory: what splitting found, then its parts, `outer` rows
// of k each, their rows padded.
struct Split {
  static constexpr int64_t kHeaderBytes = 256;

  static int64_t Ld(int64_t k) { return RoundUp(k, 8); }
  static size_t Bytes(int64_t outer, int64_t k) {
    return kHeaderBytes +
           RoundUp(3 * outer * Ld(k) * int64_t{sizeof(__nv_bfloat16)}, 256);
  }
  static Bf16Findings* Findings(void* split) {
    return static_cast<Bf16Findings*>(split);
  }
  static __nv_bfloat16* Parts(void* split) {
    return reinterpret_cast<__nv_bfloat16*>(static_cast<uint8_t*>(split) +
                                            kHeaderBytes);
  }
};

// Where what a product leaves in its workspace lies: offsets in bytes.
struct Workspace {
  size_t left_alone = 0;
  size_t a = 0;
  size_t b = 0;
  size_t partials = 0;
  size_t flags = 0;
  size_t fallback = 0;  // shares its place with a and what follows it
  size_t bytes = 0;
};

Workspace LayOut(const GemmShape& s, const PreparedOperands& operands,
                 int workers, size_t fallback_bytes) {
  Workspace w;
  const auto take = [&w](int64_t bytes) {
    const size_t at = w.bytes;
    w.bytes += RoundUp(bytes, 256);
    return at;
  };
  w.left_alone = take(sizeof(uint32_t));
  w.fallback = w.bytes;
  if (operands.a == nullptr) w.a = take(Split::Bytes(s.m, s.k));
  if (operands.b == nullptr) w.b = take(Split::Bytes(s.n, s.k));
  w.partials = take(int64_t{workers} * Tile::kM * Tile::kN * 4);
  w.flags = take(int64_t{workers} * 8);
  w.bytes = std::max(w.bytes, w.fallback + fallback_bytes);
  return w;
}

absl::StatusOr<CUtensorMap> MapParts(void* split, int64_t rows, int64_t k,
                                     int box_rows) {
  return MakeTensorMap({.base = Split::Parts(split),
                        .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                        .element_bytes = sizeof(__nv_bfloat16),
                        .columns = k,
                        .rows = 3 * rows,
                        .leading_dimension = Split::Ld(k),
                        .box_columns = Tile::kK,
                        .box_rows = box_rows,
                        .swizzle_bytes = Tile::kK * 2});
}

class Sm90Bf16x6Sgemm final : public SgemmKernel, private PreparedSgemm {
 public:
  Sm90Bf16x6Sgemm(KernelInfo info, const Sm90Ffma& ffma)
      : SgemmKernel(std::move(info)), ffma_(ffma) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    constexpr int64_t kMaxSize = int64_t{1} << 29;  // three times that: 32 bits
    const GemmShape& s = args.shape;
    if (s.m == 0 || s.n == 0) return absl::OkStatus();
    if (s.m > kMaxSize || s.n > kMaxSize || s.k > kMaxSize) {
      return absl::FailedPreconditionError(
          absl::StrCat(info().name, " takes m, n and k up to ", kMaxSize,
                       "; this product has ", s.m, ", ", s.n, " and ", s.k));
    }
    return Sm90Ffma::Supports(args, info().name);
  }

  size_t WorkspaceBytes(std::span<const SgemmArgs> problems) const override {
    size_t bytes = 0;  // one after the other, they share it
    for (const SgemmArgs& args : problems) {
      bytes = std::max(bytes, WorkspaceBytes(args, {}));
    }
    return bytes;
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (const SgemmArgs& args : problems) {
      absl::Status status = Launch(args, {}, context);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const PreparedSgemm* prepared() const override { return this; }

 private:
  // The split operands of a product, wherever they are.
  struct Splits {
    void* a;
    void* b;
  };

  bool UsesForms(const SgemmArgs& args) const override {
    return HasProduct(args) && args.shape.k >= kShortestK;
  }

  size_t PreparedBytes(int64_t rows, int64_t cols,
                       KDirection k) const override {
    return k == KDirection::kAlongRows ? Split::Bytes(rows, cols)
                                       : Split::Bytes(cols, rows);
  }

  absl::Status Prepare(const float* x, int64_t ld, int64_t rows, int64_t cols,
                       KDirection k, void* form,
                       CUstream_st* stream) const override {
    if (rows == 0 || cols == 0) return absl::OkStatus();
    absl::Status status =
        CudaStatus(cudaMemsetAsync(form, 0, sizeof(Bf16Findings), stream),
                   "cudaMemsetAsync");
    if (!status.ok()) return status;
    const bool transpose = k == KDirection::kAlongColumns;
    return SplitIntoBf16(x, ld, rows, cols, transpose, Split::Parts(form),
                         Split::Ld(transpose ? rows : cols),
                         Split::Findings(form), stream);
  }

  size_t WorkspaceBytes(const SgemmArgs& args,
                        const PreparedOperands& operands) const override {
    if (!HasProduct(args)) return 0;
    return args.shape.k < kShortestK ? ffma_.WorkspaceBytes(args)
                                     : LayOut(args, operands).bytes;
  }

  absl::Status Launch(const SgemmArgs& args, const PreparedOperands& operands,
                      const LaunchContext& context) const override {
    if (!HasProduct(args)) {
      return ScaleMatrix(args.c, args.ldc, args.shape.m, args.shape.n,
                         args.beta, context.stream);
    }
    return args.shape.k < kShortestK ? ffma_.Launch(args, context, nullptr)
                                     : LaunchProduct(args, operands, context);
  }

  Workspace LayOut(const SgemmArgs& args,
                   const PreparedOperands& operands) const {
    return gemmd::LayOut(args.shape, operands, ffma_.device().sm_count,
                         ffma_.WorkspaceBytes(args));
  }

  absl::Status LaunchProduct(const SgemmArgs& args,
                             const PreparedOperands& operands,
                             const LaunchContext& context) const {
    const GemmShape& s = args.shape;
    const Workspace w = LayOut(args, operands);
    if (w.bytes > context.workspace_bytes) {
      return absl::InternalError(
          absl::StrCat(info().name, ": the workspace has ",
                       context.workspace_bytes, " bytes; needed: ", w.bytes));
    }
    auto* const workspace = static_cast<uint8_t*>(context.workspace);
    // The copy engine reads through pointers that are not const.
    Splits splits = {const_cast<void*>(operands.a),
                     const_cast<void*>(operands.b)};
    absl::Status status;
    if (splits.a == nullptr) {
      splits.a = workspace + w.a;
      status.Update(Prepare(args.a, args.lda, StoredRowsA(s), StoredColsA(s),
                            KDirectionOfA(s), splits.a, context.stream));
    }
    if (splits.b == nullptr) {
      splits.b = workspace + w.b;
      status.Update(Prepare(args.b, args.ldb, StoredRowsB(s), StoredColsB(s),
                            KDirectionOfB(s), splits.b, context.stream));
    }
    if (status.ok()) {
      status = Multiply(args, splits, w, workspace, context.stream);
    }
    if (!status.ok()) return status;

    LaunchContext rest = context;
    rest.workspace = workspace + w.fallback;
    rest.workspace_bytes = context.workspace_bytes - w.fallback;
    return ffma_.Launch(args, rest,
                        reinterpret_cast<uint32_t*>(workspace + w.left_alone));
  }

  absl::Status Multiply(const SgemmArgs& args, const Splits& splits,
                        const Workspace& w, uint8_t* workspace,
                        CUstream_st* stream) const {
    const GemmShape& s = args.shape;
    absl::StatusOr<CUtensorMap> map_a = MapParts(splits.a, s.m, s.k, Tile::kM);
    if (!map_a.ok()) return map_a.status();
    absl::StatusOr<CUtensorMap> map_b = MapParts(splits.b, s.n, s.k, Tile::kN);
    if (!map_b.ok()) return map_b.status();
    const int64_t tiles_m = CeilDiv(s.m, Tile::kM);
    const int64_t tiles_n = CeilDiv(s.n, Tile::kN);
    const int workers = ffma_.device().sm_count;
    const sm90::Bf16x6Problem problem = {
        .output = {.c = args.c,
                   .ldc = args.ldc,
                   .m = static_cast<int>(s.m),
                   .n = static_cast<int>(s.n),
                   .alpha = args.alpha,
                   .beta = args.beta,
                   .vector = reinterpret_cast<uintptr_t>(args.c) % 8 == 0 &&
                             args.ldc % 2 == 0},
        .plan =
            SplitTail::Of(tiles_m * tiles_n,
                          static_cast<int>(CeilDiv(s.k, Tile::kK)), workers),
        .tiles_m = static_cast<int>(tiles_m),
        .tiles_n = static_cast<int>(tiles_n),
        .rows_a = static_cast<int>(s.m),
        .rows_b = static_cast<int>(s.n),
        .partials = reinterpret_cast<float4*>(workspace + w.partials),
        .flags = reinterpret_cast<uint64_t*>(workspace + w.flags),
        .launch = NextLaunchId(),
        .findings_a = Split::Findings(splits.a),
        .findings_b = Split::Findings(splits.b),
        .left_alone = reinterpret_cast<uint32_t*>(workspace + w.left_alone),
        .log2_k = CeilLog2(s.k)};
    absl::Status status = CudaStatus(
        cudaFuncSetAttribute(&sm90::Bf16x6,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Tile::kSharedBytes),
        "cudaFuncSetAttribute");
    if (!status.ok()) return status;
    sm90::Bf16x6<<<workers, Tile::kThreads, Tile::kSharedBytes, stream>>>(
        *map_a, *map_b, problem);
    return CudaStatus(cudaGetLastError(), "launch of Bf16x6");
  }

  const Sm90Ffma ffma_;
};

}  // namespace

MadeKernel MakeSm90Bf16x6Sgemm(KernelInfo info) {
  absl::StatusOr<Sm90Ffma> ffma = Sm90Ffma::Create();
  if (!ffma.ok()) return ffma.status();
  return std::make_unique<const Sm90Bf16x6Sgemm>(std::move(info), *ffma);
}

}  // namespace gemmd
