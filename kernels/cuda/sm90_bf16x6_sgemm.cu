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

// Where the parts of a product's workspace lie.
struct Workspace {
  int64_t parts_ld;
  size_t findings = 0;  // offsets in bytes
  size_t a = 0;
  size_t b = 0;
  size_t partials = 0;
  size_t flags = 0;
  size_t fallback = 0;  // shares its place with a and what follows it
  size_t bytes = 0;
};

Workspace LayOut(const GemmShape& s, int workers, size_t fallback_bytes) {
  Workspace w;
  w.parts_ld = RoundUp(s.k, 8);
  const auto take = [&w](int64_t bytes) {
    const size_t at = w.bytes;
    w.bytes += RoundUp(bytes, 256);
    return at;
  };
  w.findings = take(sizeof(Bf16Findings));
  w.fallback = w.bytes;
  w.a = take(3 * s.m * w.parts_ld * int64_t{sizeof(__nv_bfloat16)});
  w.b = take(3 * s.n * w.parts_ld * int64_t{sizeof(__nv_bfloat16)});
  w.partials = take(int64_t{workers} * Tile::kM * Tile::kN * 4);
  w.flags = take(int64_t{workers} * 8);
  w.bytes = std::max(w.bytes, w.fallback + fallback_bytes);
  return w;
}

absl::StatusOr<CUtensorMap> MapParts(const void* parts, int64_t rows, int64_t k,
                                     int64_t ld, int box_rows) {
  return MakeTensorMap({.base = parts,
                        .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                        .element_bytes = sizeof(__nv_bfloat16),
                        .columns = k,
                        .rows = 3 * rows,
                        .leading_dimension = ld,
                        .box_columns = Tile::kK,
                        .box_rows = box_rows,
                        .swizzle_bytes = Tile::kK * 2});
}

class Sm90Bf16x6Sgemm final : public SgemmKernel {
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
      if (HasProduct(args)) bytes = std::max(bytes, BytesOf(args));
    }
    return bytes;
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    for (const SgemmArgs& args : problems) {
      absl::Status status =
          HasProduct(args)
              ? args.shape.k < kShortestK ? ffma_.Launch(args, context, nullptr)
                                          : LaunchProduct(args, context)
              : ScaleMatrix(args.c, args.ldc, args.shape.m, args.shape.n,
                            args.beta, context.stream);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  size_t BytesOf(const SgemmArgs& args) const {
    return args.shape.k < kShortestK ? ffma_.WorkspaceBytes(args)
                                     : LayOut(args).bytes;
  }
  Workspace LayOut(const SgemmArgs& args) const {
    return gemmd::LayOut(args.shape, ffma_.device().sm_count,
                         ffma_.WorkspaceBytes(args));
  }

  absl::Status LaunchProduct(const SgemmArgs& args,
                             const LaunchContext& context) const {
    const GemmShape& s = args.shape;
    const Workspace w = LayOut(args);
    if (w.bytes > context.workspace_bytes) {
      return absl::InternalError(
          absl::StrCat(info().name, ": the workspace has ",
                       context.workspace_bytes, " bytes; needed: ", w.bytes));
    }
    auto* const workspace = static_cast<uint8_t*>(context.workspace);
    auto* const findings =
        reinterpret_cast<Bf16Findings*>(workspace + w.findings);
    auto* const a = reinterpret_cast<__nv_bfloat16*>(workspace + w.a);
    auto* const b = reinterpret_cast<__nv_bfloat16*>(workspace + w.b);

    absl::Status status = CudaStatus(
        cudaMemsetAsync(findings, 0, sizeof(Bf16Findings), context.stream),
        "cudaMemsetAsync");
    status.Update(SplitIntoBf16(
        args.a, args.lda, StoredRowsA(s), StoredColsA(s), s.transpose_a, a,
        w.parts_ld, &findings->largest_a, &findings->has_tiny, context.stream));
    status.Update(SplitIntoBf16(
        args.b, args.ldb, StoredRowsB(s), StoredColsB(s), !s.transpose_b, b,
        w.parts_ld, &findings->largest_b, &findings->has_tiny, context.stream));
    status.Update(Multiply(args, w, workspace, context.stream));
    if (!status.ok()) return status;

    LaunchContext rest = context;
    rest.workspace = workspace + w.fallback;
    rest.workspace_bytes = context.workspace_bytes - w.fallback;
    return ffma_.Launch(args, rest, &findings->left_alone);
  }

  absl::Status Multiply(const SgemmArgs& args, const Workspace& w,
                        uint8_t* workspace, CUstream_st* stream) const {
    const GemmShape& s = args.shape;
    absl::StatusOr<CUtensorMap> map_a =
        MapParts(workspace + w.a, s.m, s.k, w.parts_ld, Tile::kM);
    if (!map_a.ok()) return map_a.status();
    absl::StatusOr<CUtensorMap> map_b =
        MapParts(workspace + w.b, s.n, s.k, w.parts_ld, Tile::kN);
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
        .findings = reinterpret_cast<Bf16Findings*>(workspace + w.findings),
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
