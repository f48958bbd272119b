// The inner loop is in sm90_ffma_tile.cuh, the kernels around it in
// sm90_ffma_kernels.cuh, the choice between them in sm90_ffma_plan.h; here is
// what launches them.
//
// The kernels read A along k or along m, and B along n, through the copy
// engine, which wants 16-byte aligned rows. Any other operand is first brought
// into that form in the workspace: one pass over memory.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/pack_matrix.h"
#include "kernels/cuda/sm90_ffma.h"
#include "kernels/cuda/sm90_ffma_kernels.cuh"
#include "kernels/cuda/sm90_ffma_plan.h"
#include "kernels/cuda/sm90_tensor_map.h"

namespace gemmd {
namespace {

using sm90::LayoutA;

using StreamKTile = sm90::FfmaTile<LayoutA::kAlongK, 8, 16>;
using StreamKRing = sm90::FfmaRing<StreamKTile, sm90::kFfmaStages>;
constexpr int kWorkersPerSm = 2;

// A cluster kernel's functions and what their launch needs.
struct ClusterKernel {
  using Function = void (*)(CUtensorMap, CUtensorMap, sm90::FfmaClusterProblem);
  Function along_k;
  Function along_m;
  int tile;
  int threads;
  int shared_bytes;
};

template <template <LayoutA> typename Shape>
ClusterKernel MakeClusterKernel() {
  using AlongK = Shape<LayoutA::kAlongK>;
  using AlongM = Shape<LayoutA::kAlongM>;
  using Tile = typename AlongK::Tile;
  return {&sm90::FfmaCluster<LayoutA::kAlongK, AlongK>,
          &sm90::FfmaCluster<LayoutA::kAlongM, AlongM>, Tile::kTileM,
          AlongK::kThreads,
          sm90::FfmaRing<Tile, AlongK::kStages>::kAllocatedBytes};
}

const ClusterKernel& ClusterKernelOf(FfmaKind kind) {
  static const ClusterKernel large = MakeClusterKernel<sm90::FfmaCluster128>();
  static const ClusterKernel small = MakeClusterKernel<sm90::FfmaCluster64>();
  static const ClusterKernel light =
      MakeClusterKernel<sm90::FfmaClusterLight>();
  switch (kind) {
    case FfmaKind::kCluster128:
      return large;
    case FfmaKind::kCluster64:
      return small;
    default:
      return light;
  }
}

// A launch in clusters of `slices` blocks.
struct ClusterLaunch {
  ClusterLaunch(const ClusterKernel& kernel, int blocks, int slices,
                CUstream_st* stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(slices), 1, 1};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kernel.threads);
    config.dynamicSmemBytes = kernel.shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;

  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
};

int64_t CeilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0); }
int64_t RoundUp(int64_t x, int64_t multiple) {
  return CeilDiv(x, multiple) * multiple;
}

bool IsAligned(const float* x, int64_t ld) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && ld % 4 == 0;
}

// Where the parts of a product's workspace lie.
struct Workspace {
  bool pack_a;
  bool pack_b;
  int64_t a_ld;  // of the packed operands
  int64_t b_ld;
  size_t partials = 0;  // offsets in bytes
  size_t flags = 0;
  size_t a = 0;
  size_t b = 0;
  size_t bytes = 0;
};

Workspace LayOut(const SgemmArgs& args, FfmaPlan plan, int workers) {
  const GemmShape& s = args.shape;
  Workspace w;
  w.pack_a = !IsAligned(args.a, args.lda);
  w.pack_b = s.transpose_b || !IsAligned(args.b, args.ldb);
  w.a_ld = RoundUp(StoredColsA(s), 4);
  w.b_ld = RoundUp(s.n, 4);
  const auto take = [&w](size_t bytes) {
    const size_t at = w.bytes;
    w.bytes += RoundUp(static_cast<int64_t>(bytes), 256);
    return at;
  };
  if (plan.kind == FfmaKind::kStreamK) {
    w.partials = take(size_t(workers) * StreamKTile::kTileM *
                      StreamKTile::kTileN * sizeof(float));
    w.flags = take(size_t(workers) * sizeof(uint64_t));
  }
  if (w.pack_a) w.a = take(size_t(StoredRowsA(s)) * w.a_ld * sizeof(float));
  if (w.pack_b) w.b = take(size_t(s.k) * w.b_ld * sizeof(float));
  return w;
}

absl::Status LaunchStreamK(bool transpose_a, const CUtensorMap& map_a,
                           const CUtensorMap& map_b,
                           const sm90::FfmaStreamKProblem& problem,
                           CUstream_st* stream) {
  const auto kernel = transpose_a ? &sm90::FfmaStreamK<LayoutA::kAlongM>
                                  : &sm90::FfmaStreamK<LayoutA::kAlongK>;
  absl::Status status = CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           StreamKRing::kAllocatedBytes),
      "cudaFuncSetAttribute");
  if (!status.ok()) return status;
  kernel<<<problem.plan.workers, sm90::kFfmaThreads,
           StreamKRing::kAllocatedBytes, stream>>>(map_a, map_b, problem);
  return CudaStatus(cudaGetLastError(), "launch of FfmaStreamK");
}

absl::Status LaunchCluster(const ClusterKernel& kernel, bool transpose_a,
                           const CUtensorMap& map_a, const CUtensorMap& map_b,
                           const sm90::FfmaClusterProblem& problem, int blocks,
                           int slices, CUstream_st* stream) {
  const auto function = transpose_a ? kernel.along_m : kernel.along_k;
  absl::Status status =
      CudaStatus(cudaFuncSetAttribute(
                     function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                     kernel.shared_bytes),
                 "cudaFuncSetAttribute");
  if (!status.ok()) return status;
  ClusterLaunch launch(kernel, blocks, slices, stream);
  return CudaStatus(
      cudaLaunchKernelEx(&launch.config, function, map_a, map_b, problem),
      "launch of FfmaCluster");
}

// Shows in its attributes, without being run, whether the device gets code for
// sm_90a: only there it has a shared variable.
__global__ void Sm90aProbe() {
#if defined(GEMMD_SM90A)
  __shared__ volatile int compiled;
  compiled = 1;
#endif
}

bool HasSm90aCode() {
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, &Sm90aProbe) != cudaSuccess) {
    cudaGetLastError();  // or the next launch would report it
    return false;
  }
  return attributes.sharedSizeBytes > 0;
}

// What the plan wants to know of the current device.
absl::StatusOr<FfmaDevice> LookAtDevice() {
  FfmaDevice found;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&found.sm_count,
                                   cudaDevAttrMultiProcessorCount, device);
  }
  // The kernel with the largest shared memory: one block an SM.
  const ClusterKernel& kernel = ClusterKernelOf(FfmaKind::kCluster128);
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel.along_k,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kernel.shared_bytes);
  }
  for (int slices = 1; slices <= kMaxFfmaSlices && error == cudaSuccess;
       ++slices) {
    const ClusterLaunch launch(kernel, slices, slices, nullptr);
    error = cudaOccupancyMaxActiveClusters(&found.clusters[slices],
                                           kernel.along_k, &launch.config);
  }
  absl::Status status = CudaStatus(error, "cudaOccupancyMaxActiveClusters");
  if (!status.ok()) return status;
  return found;
}

}  // namespace

absl::StatusOr<Sm90Ffma> Sm90Ffma::Create() {
  if (!HasSm90aCode()) {
    return absl::FailedPreconditionError(
        "this build has no code of this kernel for the device; it needs "
        "compute capability 9.0 (H100, H200) and a build for 90a");
  }
  absl::StatusOr<FfmaDevice> device = LookAtDevice();
  if (!device.ok()) return device.status();
  return Sm90Ffma(*device);
}

absl::Status Sm90Ffma::Supports(const SgemmArgs& args,
                                absl::string_view kernel) {
  // Coordinates are 32 bits, and TMA's byte strides less than 2^40.
  constexpr int64_t kMaxSize = int64_t{1} << 30;
  constexpr int64_t kMaxLd = int64_t{1} << 37;
  const GemmShape& s = args.shape;
  if (s.m == 0 || s.n == 0) return absl::OkStatus();
  if (s.m <= kMaxSize && s.n <= kMaxSize && s.k <= kMaxSize &&
      args.lda <= kMaxLd && args.ldb <= kMaxLd) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      kernel, " takes m, n and k up to ", kMaxSize,
      " and leading dimensions up to ", kMaxLd, "; this product has ", s.m,
      ", ", s.n, ", ", s.k, " and ", args.lda, ", ", args.ldb));
}

FfmaPlan Sm90Ffma::Plan(const GemmShape& s) const {
  return PlanFfma(s.m, s.n, s.k, device_);
}

StreamK Sm90Ffma::PlanStreamK(const GemmShape& s) const {
  StreamK plan;
  plan.tiles =
      CeilDiv(s.m, StreamKTile::kTileM) * CeilDiv(s.n, StreamKTile::kTileN);
  plan.steps_per_tile = CeilDiv(s.k, sm90::kFfmaTileK);
  plan.workers = static_cast<int>(std::min<int64_t>(
      device_.sm_count * kWorkersPerSm, plan.tiles * plan.steps_per_tile));
  return plan;
}

size_t Sm90Ffma::WorkspaceBytes(const SgemmArgs& args) const {
  return LayOut(args, Plan(args.shape), PlanStreamK(args.shape).workers).bytes;
}

absl::Status Sm90Ffma::Launch(const SgemmArgs& args,
                              const LaunchContext& context,
                              const uint32_t* only_if) const {
  const GemmShape& s = args.shape;
  const FfmaPlan plan = Plan(s);
  const Workspace w = LayOut(args, plan, PlanStreamK(s).workers);
  if (w.bytes > context.workspace_bytes) {
    return absl::InternalError(absl::StrCat("sm90_ffma: the workspace has ",
                                            context.workspace_bytes,
                                            " bytes; needed: ", w.bytes));
  }
  auto* const workspace = static_cast<uint8_t*>(context.workspace);

  // Operands the copy engine can read.
  const float* a = args.a;
  int64_t lda = args.lda;
  if (w.pack_a) {
    auto* packed = reinterpret_cast<float*>(workspace + w.a);
    absl::Status status =
        PackMatrix(a, lda, StoredRowsA(s), StoredColsA(s), false, packed,
                   w.a_ld, context.stream, only_if);
    if (!status.ok()) return status;
    a = packed;
    lda = w.a_ld;
  }
  const float* b = args.b;
  int64_t ldb = args.ldb;
  if (w.pack_b) {
    auto* packed = reinterpret_cast<float*>(workspace + w.b);
    absl::Status status =
        PackMatrix(b, ldb, StoredRowsB(s), StoredColsB(s), s.transpose_b,
                   packed, w.b_ld, context.stream, only_if);
    if (!status.ok()) return status;
    b = packed;
    ldb = w.b_ld;
  }

  // Their descriptions.
  const int tile = plan.kind == FfmaKind::kStreamK
                       ? StreamKTile::kTileM
                       : ClusterKernelOf(plan.kind).tile;
  TensorMapSpec spec_a = {.base = a,
                          .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                          .element_bytes = sizeof(float),
                          .columns = StoredColsA(s),
                          .rows = StoredRowsA(s),
                          .leading_dimension = lda,
                          .box_columns = sm90::kFfmaTileK,
                          .box_rows = tile,
                          .swizzle_bytes = s.transpose_a ? 0 : 128};
  if (s.transpose_a) std::swap(spec_a.box_columns, spec_a.box_rows);
  absl::StatusOr<CUtensorMap> map_a = MakeTensorMap(spec_a);
  if (!map_a.ok()) return map_a.status();
  absl::StatusOr<CUtensorMap> map_b =
      MakeTensorMap({.base = b,
                     .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                     .element_bytes = sizeof(float),
                     .columns = s.n,
                     .rows = s.k,
                     .leading_dimension = ldb,
                     .box_columns = tile,
                     .box_rows = sm90::kFfmaTileK,
                     .swizzle_bytes = 0});
  if (!map_b.ok()) return map_b.status();

  const sm90::FfmaOutput output = {.c = args.c,
                                   .ldc = args.ldc,
                                   .m = static_cast<int>(s.m),
                                   .n = static_cast<int>(s.n),
                                   .alpha = args.alpha,
                                   .beta = args.beta,
                                   .vector = IsAligned(args.c, args.ldc)};
  if (plan.kind == FfmaKind::kStreamK) {
    const sm90::FfmaStreamKProblem problem = {
        .output = output,
        .plan = PlanStreamK(s),
        .tiles_m = static_cast<int>(CeilDiv(s.m, tile)),
        .partials = reinterpret_cast<float4*>(workspace + w.partials),
        .flags = reinterpret_cast<uint64_t*>(workspace + w.flags),
        .launch = NextLaunchId(),
        .only_if = only_if};
    return LaunchStreamK(s.transpose_a, *map_a, *map_b, problem,
                         context.stream);
  }
  const sm90::FfmaClusterProblem problem = {
      .output = output,
      .tiles_m = static_cast<int>(CeilDiv(s.m, tile)),
      .steps = static_cast<int>(CeilDiv(s.k, sm90::kFfmaTileK)),
      .only_if = only_if};
  const int64_t blocks = problem.tiles_m * CeilDiv(s.n, tile) * plan.slices;
  return LaunchCluster(ClusterKernelOf(plan.kind), s.transpose_a, *map_a,
                       *map_b, problem, static_cast<int>(blocks), plan.slices,
                       context.stream);
}

bool HasProduct(const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  return args.alpha != 0 && s.m > 0 && s.n > 0 && s.k > 0;
}

uint64_t NextLaunchId() {
  static std::atomic<uint64_t> next = [] {
    std::random_device random;
    return (uint64_t{random()} << 32 | random()) | 1;
  }();
  return next.fetch_add(2, std::memory_order_relaxed);
}

}  // namespace gemmd
