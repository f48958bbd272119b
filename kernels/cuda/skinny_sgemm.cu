// skinny: up to 64 rows against a large B, which is what a batch of requests on
// one resident matrix is. The rows of all products of a Launch that have the
// same B are computed in one pass over it, wherever they lie. What decides the
// bits, how k is cut, follows from B alone (skinny_plan.h), so that a row has
// the same bits alone, in its product and in a batch.

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/ladder.h"
#include "kernels/cuda/pack_matrix.h"
#include "kernels/cuda/skinny_kernel.cuh"
#include "kernels/cuda/skinny_sgemm.h"
#include "kernels/cuda/skinny_warps_kernel.cuh"
#include "kernels/cuda/sm90_ffma.h"
#include "kernels/cuda/table_sgemm.h"

namespace gemmd {
namespace {

constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();
// A product of many rows that is cut along k: so many passes of 64 rows in a
// launch, so that the workspace stays small.
constexpr int64_t kMaxPassesCut = 4;

int64_t CeilDiv(int64_t x, int64_t y) { return x / y + (x % y != 0); }

// A kernel for up to `rows` rows.
struct Function {
  int rows;
  int shared_bytes;
  std::array<const void*, 2> kernel;  // by transpose_b
};

template <int kRows>
Function BlockRing() {
  return {kRows,
          SkinnyShape<kRows>::kRingBytes,
          {reinterpret_cast<const void*>(&Skinny<kRows, false>),
           reinterpret_cast<const void*>(&Skinny<kRows, true>)}};
}
template <int kRows>
Function WarpRings() {
  return {kRows,
          SkinnyWarpsShape<kRows>::kRingBytes,
          {reinterpret_cast<const void*>(&SkinnyWarps<kRows, false>),
           reinterpret_cast<const void*>(&SkinnyWarps<kRows, true>)}};
}

std::array<Function, 4> FunctionsOf(SkinnyWay way) {
  if (way == SkinnyWay::kWarpRings) {
    return {WarpRings<8>(), WarpRings<16>(), WarpRings<32>(),
            WarpRings<kSkinnyMaxRows>()};
  }
  return {BlockRing<8>(), BlockRing<16>(), BlockRing<32>(),
          BlockRing<kSkinnyMaxRows>()};
}

// What products in one pass have in common.
auto SharedPart(const SgemmArgs& p) {
  return std::tuple(p.b, p.ldb, p.shape.n, p.shape.k, p.shape.transpose_b,
                    std::bit_cast<uint32_t>(p.alpha),
                    std::bit_cast<uint32_t>(p.beta),
                    p.shape.transpose_a ? p.lda : 1);
}

// Whether the rows of one pass, which may come from several products, are at
// equal distances.
void FindStride(SkinnyProblem& problem) {
  const auto address = [&](int64_t row) {
    return reinterpret_cast<intptr_t>(problem.each[row].a);
  };
  const intptr_t bytes = problem.rows > 1 ? address(1) - address(0) : 0;
  problem.even = bytes != 0 && bytes % 4 == 0;
  for (int64_t row = 2; row < problem.rows; ++row) {
    problem.even = problem.even && address(row) - address(row - 1) == bytes;
  }
  problem.stride_a = bytes / 4;
}

// Where the sums of slices and their flags lie in the workspace.
struct Workspace {
  size_t flags;  // from its start
  size_t bytes;
};

Workspace LayOut(const SkinnyPlan& plan, int64_t passes, int rows) {
  const int64_t slices = plan.tiles * passes * (plan.slices - 1);
  const int64_t sums = slices * rows * kSkinnyTileN * 4;
  return {static_cast<size_t>(sums), static_cast<size_t>(sums + slices * 8)};
}

class SkinnySgemm final : public SgemmKernel {
 public:
  SkinnySgemm(KernelInfo info, SkinnyWay way, int sm_count)
      : SgemmKernel(std::move(info)),
        functions_(FunctionsOf(way)),
        sm_count_(sm_count) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    const GemmShape& s = args.shape;
    if (s.m == 0 || s.n == 0 || s.k == 0) return absl::OkStatus();
    const SkinnyPlan plan = PlanSkinny(s.n, s.k, sm_count_);
    if (plan.blocks() <= kMaxBlocks && plan.steps <= kMaxBlocks) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        absl::StrCat(info().name, " takes n up to ", kMaxBlocks, " * ",
                     kSkinnyTileN, " and k up to ", kMaxBlocks, " * ",
                     kSkinnyStepK, "; this product has ", s.n, " and ", s.k));
  }

  // Enough whichever of the products turn out to share a B.
  size_t WorkspaceBytes(std::span<const SgemmArgs> problems) const override {
    int64_t rows = 0;
    for (const SgemmArgs& p : problems) {
      if (HasProduct(p)) rows += std::min(p.shape.m, kRowsOfAll);
    }
    rows = std::min(rows, kRowsOfAll);
    size_t bytes = 0;  // one launch after the other, they share it
    const GemmShape* last = nullptr;
    for (const SgemmArgs& p : problems) {
      if (!HasProduct(p)) continue;
      if (last != nullptr && last->n == p.shape.n && last->k == p.shape.k) {
        continue;
      }
      last = &p.shape;
      const SkinnyPlan plan = PlanSkinny(p.shape.n, p.shape.k, sm_count_);
      const int pass = FunctionFor(rows).rows;
      bytes = std::max(bytes, LayOut(plan, CeilDiv(rows, pass), pass).bytes);
    }
    return bytes;
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    std::vector<const SgemmArgs*> products;
    for (const SgemmArgs& p : problems) {
      if (HasProduct(p)) {
        products.push_back(&p);
        continue;
      }
      absl::Status status =
          ScaleMatrix(p.c, p.ldc, p.shape.m, p.shape.n, p.beta, context.stream);
      if (!status.ok()) return status;
    }
    std::ranges::stable_sort(products, {},
                             [](const SgemmArgs* p) { return SharedPart(*p); });
    while (!products.empty()) {
      const auto end = std::ranges::find_if(products, [&](const SgemmArgs* p) {
        return SharedPart(*p) != SharedPart(*products[0]);
      });
      absl::Status status = LaunchOnOneB({products.begin(), end}, context);
      if (!status.ok()) return status;
      products.erase(products.begin(), end);
    }
    return absl::OkStatus();
  }

 private:
  const Function& FunctionFor(int64_t rows) const {
    for (const Function& f : functions_) {
      if (rows <= f.rows) return f;
    }
    return functions_.back();
  }

  static constexpr int64_t kRowsOfAll = kMaxPassesCut * kSkinnyMaxRows;

  // Products that have one B: the large ones alone, the rows of all others
  // together, as they come.
  absl::Status LaunchOnOneB(std::span<const SgemmArgs* const> products,
                            const LaunchContext& context) const {
    SkinnyProblem gathered = ProblemOf(*products[0]);
    for (const SgemmArgs* p : products) {
      const int64_t stride_a = p->shape.transpose_a ? 1 : p->lda;
      if (p->shape.m > kSkinnyMaxRows) {
        absl::Status status = LaunchLarge(*p, stride_a, context);
        if (!status.ok()) return status;
        continue;
      }
      for (int64_t row = 0; row < p->shape.m; ++row) {
        gathered.each[gathered.rows++] = {p->a + row * stride_a,
                                          p->c + row * p->ldc};
        if (gathered.rows < kSkinnyMaxRows) continue;
        absl::Status status = LaunchPasses(*products[0], gathered, context);
        if (!status.ok()) return status;
        gathered.rows = 0;
      }
    }
    if (gathered.rows == 0) return absl::OkStatus();
    return LaunchPasses(*products[0], gathered, context);
  }

  // A product of more rows than a pass has.
  absl::Status LaunchLarge(const SgemmArgs& args, int64_t stride_a,
                           const LaunchContext& context) const {
    SkinnyProblem problem = ProblemOf(args);
    const int64_t most =
        kSkinnyMaxRows * (problem.plan.slices > 1
                              ? kMaxPassesCut
                              : kMaxBlocks / problem.plan.blocks());
    problem.even = true;
    problem.stride_a = stride_a;
    problem.stride_c = args.ldc;
    for (int64_t row = 0; row < args.shape.m; row += most) {
      problem.rows = std::min(most, args.shape.m - row);
      problem.first = {args.a + row * stride_a, args.c + row * args.ldc};
      for (int64_t r = 0; r < std::min<int64_t>(problem.rows, kSkinnyMaxRows);
           ++r) {
        problem.each[r] = {problem.first.a + r * stride_a,
                           problem.first.c + r * args.ldc};
      }
      absl::Status status = LaunchPasses(args, problem, context);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // All but the rows.
  SkinnyProblem ProblemOf(const SgemmArgs& args) const {
    const GemmShape& s = args.shape;
    SkinnyProblem problem = {};
    problem.b = args.b;
    problem.ldb = args.ldb;
    problem.n = s.n;
    problem.k = s.k;
    problem.stride_k = s.transpose_a ? args.lda : 1;
    problem.alpha = args.alpha;
    problem.beta = args.beta;
    problem.vector_b =
        reinterpret_cast<uintptr_t>(args.b) % 16 == 0 && args.ldb % 4 == 0;
    problem.plan = PlanSkinny(s.n, s.k, sm_count_);
    return problem;
  }

  // One launch, of `problem.rows` rows.
  absl::Status LaunchPasses(const SgemmArgs& args, SkinnyProblem& problem,
                            const LaunchContext& context) const {
    const Function& function = FunctionFor(problem.rows);
    problem.passes = CeilDiv(problem.rows, function.rows);
    if (problem.passes == 1) FindStride(problem);
    const Workspace w = LayOut(problem.plan, problem.passes, function.rows);
    if (w.bytes > context.workspace_bytes) {
      return absl::InternalError(
          absl::StrCat(info().name, ": the workspace has ",
                       context.workspace_bytes, " bytes; needed: ", w.bytes));
    }
    auto* const workspace = static_cast<uint8_t*>(context.workspace);
    problem.partials = reinterpret_cast<float4*>(workspace);
    problem.flags = reinterpret_cast<uint64_t*>(workspace + w.flags);
    problem.launch = NextLaunchId();
    const int64_t blocks = problem.plan.blocks() * problem.passes;
    const void* const kernel = function.kernel[args.shape.transpose_b];
    // Each time: the limit is a device's, and the registry is made on one.
    absl::Status status =
        CudaStatus(cudaFuncSetAttribute(
                       kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       function.shared_bytes),
                   "cudaFuncSetAttribute");
    if (!status.ok()) return status;
    void* parameters[] = {&problem};
    status =
        CudaStatus(cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                    dim3(kSkinnyThreads), parameters,
                                    function.shared_bytes, context.stream),
                   "cudaLaunchKernel");
    status.Update(CudaStatus(cudaPeekAtLastError(), "after cudaLaunchKernel"));
    return status;
  }

  const std::array<Function, 4> functions_;
  const int sm_count_;
};

}  // namespace

MadeKernel MakeSkinnySgemm(KernelInfo info) {
  return MakeSkinnySgemm(std::move(info), kSkinnyWay);
}

MadeKernel MakeSkinnySgemm(KernelInfo info, SkinnyWay way) {
  int device = 0;
  int sm_count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  for (const Function& f : FunctionsOf(way)) {
    for (const void* kernel : f.kernel) {
      absl::Status runs = CheckKernelRuns(kernel);
      if (!runs.ok()) return runs;
      const cudaError_t error = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, f.shared_bytes);
      if (error == cudaSuccess) continue;
      cudaGetLastError();  // or the next launch would report it again
      return absl::FailedPreconditionError(
          absl::StrCat("a block of this kernel needs ", f.shared_bytes,
                       " bytes of shared memory; the CUDA device has less"));
    }
  }
  return std::make_unique<const SkinnySgemm>(std::move(info), way, sm_count);
}

}  // namespace gemmd
