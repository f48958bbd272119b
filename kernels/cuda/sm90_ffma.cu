// The inner loop is in sm90_ffma_tile.cuh, the kernels around it in
// sm90_ffma_kernels.cuh, the choice between them in sm90_ffma_plan.h; here is
// what launches them.
//
// Most kernels read A along k or along m, and B along n, through the copy
// engine, which wants 16-byte aligned rows. Any other operand is first brought
// into that form in the workspace, one pass over memory, or goes to a kernel
// that copies element by element.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
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
constexpr int kStreamKSharedBytes =
    sm90::FfmaRing<StreamKTile, sm90::kFfmaStages>::kAllocatedBytes +
    sm90::FfmaRowWriter<StreamKTile>::kBytes;
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
          AlongK::kThreads, AlongK::Ring::kAllocatedBytes};
}

// Of every kind but kStreamK.
const ClusterKernel& ClusterKernelOf(FfmaKind kind) {
  static const ClusterKernel kernels[] = {
      MakeClusterKernel<sm90::FfmaCluster128>(),
      MakeClusterKernel<sm90::FfmaCluster96>(),
      MakeClusterKernel<sm90::FfmaCluster64>(),
      MakeClusterKernel<sm90::FfmaClusterLight>(),
      MakeClusterKernel<sm90::FfmaCluster32>(),
      MakeClusterKernel<sm90::FfmaCopy64>(),
      MakeClusterKernel<sm90::FfmaCopyLight>(),
      MakeClusterKernel<sm90::FfmaCopy32>()};
  static_assert(std::size(kernels) == kFfmaKinds - 1);
  return kernels[static_cast<int>(kind) - 1];
}

// A launch that starts while the stream's launch before it ends
// (AwaitEarlierLaunches in sm90_pipeline.cuh), in clusters of `slices` blocks
// or, with 0, without clusters.
struct OverlappingLaunch {
  OverlappingLaunch(int blocks, int threads, int shared_bytes, int slices,
                    CUstream_st* stream) {
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {static_cast<unsigned>(slices), 1, 1};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = slices > 0 ? 2 : 1;
  }
  OverlappingLaunch(const OverlappingLaunch&) = delete;

  cudaLaunchAttribute attributes[2] = {};
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

// Whether the copy engine takes the operand as it is.
bool IsFitA(const SgemmArgs& args) { return IsAligned(args.a, args.lda); }
bool IsFitB(const SgemmArgs& args) {
  return !args.shape.transpose_b && IsAligned(args.b, args.ldb);
}

FfmaProduct ProductOf(const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  FfmaProduct product = {.m = s.m, .n = s.n, .k = s.k};
  if (!IsFitA(args)) {
    ++product.unfit_operands;
    product.unfit_elements += s.m * s.k;
  }
  if (!IsFitB(args)) {
    ++product.unfit_operands;
    product.unfit_elements += s.k * s.n;
  }
  return product;
}

Workspace LayOut(const SgemmArgs& args, FfmaPlan plan, int workers) {
  const GemmShape& s = args.shape;
  Workspace w;
  w.pack_a = !CopiesOperands(plan.kind) && !IsFitA(args);
  w.pack_b = !CopiesOperands(plan.kind) && !IsFitB(args);
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

// Describes operands that the copy engine takes, for tiles of `tile` x `tile`.
absl::Status DescribeOperands(const GemmShape& s, const float* a, int64_t lda,
                              const float* b, int64_t ldb, int tile,
                              CUtensorMap* map_a, CUtensorMap* map_b) {
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
  absl::StatusOr<CUtensorMap> made = MakeTensorMap(spec_a);
  if (!made.ok()) return made.status();
  *map_a = *made;
  made = MakeTensorMap({.base = b,
                        .type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                        .element_bytes = sizeof(float),
                        .columns = s.n,
                        .rows = s.k,
                        .leading_dimension = ldb,
                        .box_columns = tile,
                        .box_rows = sm90::kFfmaTileK,
                        .swizzle_bytes = 0});
  if (!made.ok()) return made.status();
  *map_b = *made;
  return absl::OkStatus();
}

absl::Status LaunchStreamK(bool transpose_a, const CUtensorMap& map_a,
                           const CUtensorMap& map_b,
                           const sm90::FfmaStreamKProblem& problem,
                           CUstream_st* stream) {
  const auto kernel = transpose_a
                          ? (problem.output.vector
                                 ? &sm90::FfmaStreamK<LayoutA::kAlongM, true>
                                 : &sm90::FfmaStreamK<LayoutA::kAlongM, false>)
                          : (problem.output.vector
                                 ? &sm90::FfmaStreamK<LayoutA::kAlongK, true>
                                 : &sm90::FfmaStreamK<LayoutA::kAlongK, false>);
  absl::Status status = CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           kStreamKSharedBytes),
      "cudaFuncSetAttribute");
  if (!status.ok()) return status;
  OverlappingLaunch launch(problem.plan.workers, sm90::kFfmaThreads,
                           kStreamKSharedBytes, 0, stream);
  return CudaStatus(
      cudaLaunchKernelEx(&launch.config, kernel, map_a, map_b, problem),
      "launch of FfmaStreamK");
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
  OverlappingLaunch launch(blocks, kernel.threads, kernel.shared_bytes, slices,
                           stream);
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
  for (int kind = 1; kind < kFfmaKinds; ++kind) {
    const ClusterKernel& kernel = ClusterKernelOf(static_cast<FfmaKind>(kind));
    if (error == cudaSuccess) {
      error = cudaFuncSetAttribute(kernel.along_k,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kernel.shared_bytes);
    }
    for (int slices = 1; slices <= kMaxFfmaSlices && error == cudaSuccess;
         ++slices) {
      const OverlappingLaunch launch(slices, kernel.threads,
                                     kernel.shared_bytes, slices, nullptr);
      error = cudaOccupancyMaxActiveClusters(&found.clusters[kind][slices],
                                             kernel.along_k, &launch.config);
    }
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

FfmaPlan Sm90Ffma::Plan(const SgemmArgs& args) const {
  return PlanFfma(ProductOf(args), device_);
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
  return WorkspaceBytes(args, Plan(args));
}

size_t Sm90Ffma::WorkspaceBytes(const SgemmArgs& args, FfmaPlan plan) const {
  return LayOut(args, plan, PlanStreamK(args.shape).workers).bytes;
}

absl::Status Sm90Ffma::Launch(const SgemmArgs& args,
                              const LaunchContext& context,
                              const uint32_t* only_if) const {
  return Launch(args, Plan(args), context, only_if);
}

absl::Status Sm90Ffma::Launch(const SgemmArgs& args, FfmaPlan plan,
                              const LaunchContext& context,
                              const uint32_t* only_if) const {
  const GemmShape& s = args.shape;
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

  const int tile = plan.kind == FfmaKind::kStreamK
                       ? StreamKTile::kTileM
                       : ClusterKernelOf(plan.kind).tile;
  CUtensorMap map_a = {};
  CUtensorMap map_b = {};
  if (!CopiesOperands(plan.kind)) {
    absl::Status status =
        DescribeOperands(s, a, lda, b, ldb, tile, &map_a, &map_b);
    if (!status.ok()) return status;
  }

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
    return LaunchStreamK(s.transpose_a, map_a, map_b, problem, context.stream);
  }
  const sm90::FfmaClusterProblem problem = {
      .output = output,
      .operands = {.a = a,
                   .lda = lda,
                   .b = b,
                   .ldb = ldb,
                   .k = static_cast<int>(s.k),
                   .transpose_b = s.transpose_b},
      .tiles_m = static_cast<int>(CeilDiv(s.m, tile)),
      .steps = static_cast<int>(CeilDiv(s.k, sm90::kFfmaTileK)),
      .only_if = only_if};
  const int64_t blocks = problem.tiles_m * CeilDiv(s.n, tile) * plan.slices;
  return LaunchCluster(ClusterKernelOf(plan.kind), s.transpose_a, map_a, map_b,
                       problem, static_cast<int>(blocks), plan.slices,
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
