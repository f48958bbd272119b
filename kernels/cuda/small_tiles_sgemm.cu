// small_tiles: for products too small to fill the chip with large tiles, alone
// or by the thousand, equal or mixed, in one launch. Tiles are 32 x 32 of C, so
// that a small product has many blocks and a multiprocessor many products, or
// 64 x 64, which read half as much, where there are enough of them. Either
// gives the ladder's bits: which one a batch gets may depend on the batch.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/batch_table.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/ladder.h"
#include "kernels/cuda/small_tiles_kernel.cuh"
#include "kernels/cuda/table_sgemm.h"

namespace gemmd {
namespace {

constexpr int kTiles[] = {32, 64};
constexpr int kLog2Tiles[] = {5, 6};
constexpr int64_t kMaxSteps = int64_t{1} << 30;  // along k
constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();

// Of kTiles[tile], along a size.
int64_t TilesAlong(int64_t size, int tile) {
  return (size >> kLog2Tiles[tile]) + (size % kTiles[tile] != 0);
}

// The largest int64_t where there are more.
int64_t CountTiles(const GemmShape& s, int tile) {
  int64_t tiles;
  const bool overflow = __builtin_mul_overflow(TilesAlong(s.m, tile),
                                               TilesAlong(s.n, tile), &tiles);
  return overflow ? std::numeric_limits<int64_t>::max() : tiles;
}

bool IsAligned(const float* x, int64_t ld) {
  return reinterpret_cast<uintptr_t>(x) % 16 == 0 && ld % 4 == 0;
}

BatchShape ShapeOf(const SgemmArgs& args) {
  const GemmShape& s = args.shape;
  const bool has_product = args.alpha != 0 && s.k > 0;
  return {.m = s.m,
          .n = s.n,
          .k = has_product ? s.k : 0,
          .lda = args.lda,
          .ldb = args.ldb,
          .ldc = args.ldc,
          .alpha = has_product ? args.alpha : 0,
          .beta = args.beta,
          .first_tile = 0,
          .tiles = 0,
          .tiles_n = 0,
          .first_product = 0,
          .vector_a = IsAligned(args.a, args.lda),
          .vector_b = IsAligned(args.b, args.ldb)};
}

// The tile, by index into kTiles, that takes these products the shorter time.
int ChooseTile(std::span<const SgemmArgs* const> products, int sm_count) {
  // How much faster a multiprocessor full of large tiles multiplies.
  constexpr double kGainOfLarge = 1.3;
  double small_work = 0;  // of k, times blocks
  double large_work = 0;
  double large_blocks = 0;
  const SgemmArgs* last = nullptr;
  double small = 0;
  double large = 0;
  for (const SgemmArgs* p : products) {
    if (last == nullptr || p->shape != last->shape) {
      small = static_cast<double>(CountTiles(p->shape, 0));
      large = static_cast<double>(CountTiles(p->shape, 1));
      last = p;
    }
    small_work += static_cast<double>(p->shape.k) * small;
    large_work += static_cast<double>(p->shape.k) * large;
    large_blocks += large;
  }
  return large_blocks >= 2.0 * sm_count &&
         4 * large_work < kGainOfLarge * small_work;
}

// By tile, then by transposes: of A, plus twice that of B.
template <int kTile, typename Table>
constexpr std::array kKernelsOf = {
    &SmallTiles<kTile, false, false, Table>,
    &SmallTiles<kTile, true, false, Table>,
    &SmallTiles<kTile, false, true, Table>,
    &SmallTiles<kTile, true, true, Table>,
};
template <typename Table>
constexpr std::array kKernels = {kKernelsOf<kTiles[0], Table>,
                                 kKernelsOf<kTiles[1], Table>};

int TransposesOf(const GemmShape& s) {
  return s.transpose_a + 2 * s.transpose_b;
}

// Whether products have one entry of a table.
bool AreAlike(const SgemmArgs& x, const SgemmArgs& y) {
  const auto alignment = [](const SgemmArgs& p) {
    return (reinterpret_cast<uintptr_t>(p.a) % 16 == 0) +
           2 * (reinterpret_cast<uintptr_t>(p.b) % 16 == 0);
  };
  return x.shape == y.shape && x.lda == y.lda && x.ldb == y.ldb &&
         x.ldc == y.ldc &&
         std::memcmp(&x.alpha, &y.alpha, sizeof(float)) == 0 &&
         std::memcmp(&x.beta, &y.beta, sizeof(float)) == 0 &&
         alignment(x) == alignment(y);
}

// Those of the same transposes together, and the longest first, so that none is
// begun when all others have ended.
void SortForLaunch(std::vector<const SgemmArgs*>& products) {
  using Key = std::pair<int64_t, const SgemmArgs*>;
  std::vector<Key> keys;
  keys.reserve(products.size());
  for (const SgemmArgs* p : products) {
    const int64_t transposes = TransposesOf(p->shape);
    keys.emplace_back(
        (transposes + 1) * (kMaxSteps * kSmallTileStepK + 1) - p->shape.k, p);
  }
  std::ranges::stable_sort(keys, {}, &Key::first);
  std::ranges::transform(keys, products.begin(), &Key::second);
}

// Collects products of the same transposes and launches them when a table is
// full.
class BatchLauncher {
 public:
  // `count`: of the products to come.
  BatchLauncher(int tile, size_t count, CUstream_st* stream)
      : tile_(tile), stream_(stream) {
    shapes_.reserve(count);
    products_.reserve(count);
  }

  absl::Status Add(const SgemmArgs& args) {
    const bool is_new = last_ == nullptr || !AreAlike(args, *last_);
    const int64_t tiles =
        is_new ? CountTiles(args.shape, tile_) : shapes_.back().tiles;
    const bool is_full =
        tiles_ + tiles > kMaxBlocks ||
        !LargeBatchTable::Fits(shapes_.size() + is_new, products_.size() + 1);
    if (is_full || (last_ != nullptr &&
                    TransposesOf(args.shape) != TransposesOf(last_->shape))) {
      absl::Status status = Launch();
      if (!status.ok()) return status;
    }
    if (is_new || shapes_.empty()) {
      BatchShape& shape = shapes_.emplace_back(ShapeOf(args));
      shape.first_tile = static_cast<uint32_t>(tiles_);
      shape.tiles = static_cast<uint32_t>(tiles);
      shape.tiles_n = static_cast<uint32_t>(TilesAlong(args.shape.n, tile_));
      shape.first_product = static_cast<uint32_t>(products_.size());
    }
    products_.push_back({args.a, args.b, args.c});
    tiles_ += tiles;
    last_ = &args;
    return absl::OkStatus();
  }

  // Launches what was added since the last launch.
  absl::Status Launch() {
    if (products_.empty()) return absl::OkStatus();
    const bool is_small =
        SmallBatchTable::Fits(shapes_.size(), products_.size());
    absl::Status status = is_small ? LaunchWith<SmallBatchTable>()
                                   : LaunchWith<LargeBatchTable>();
    last_ = nullptr;
    tiles_ = 0;
    shapes_.clear();
    products_.clear();
    return status;
  }

 private:
  template <typename Table>
  absl::Status LaunchWith() {
    Table table;
    table.Fill(shapes_, products_);
    void* parameters[] = {&table};
    const auto kernel = kKernels<Table>[tile_][TransposesOf(last_->shape)];
    absl::Status status = CudaStatus(
        cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                         dim3(static_cast<unsigned>(tiles_)),
                         dim3(kSmallTileThreads), parameters, 0, stream_),
        "cudaLaunchKernel");
    status.Update(CudaStatus(cudaPeekAtLastError(), "after cudaLaunchKernel"));
    return status;
  }

  const int tile_;
  CUstream_st* const stream_;
  const SgemmArgs* last_ = nullptr;  // added since the last launch
  int64_t tiles_ = 0;
  std::vector<BatchShape> shapes_;
  std::vector<BatchPointers> products_;
};

class SmallTilesSgemm final : public SgemmKernel {
 public:
  SmallTilesSgemm(KernelInfo info, int sm_count)
      : SgemmKernel(std::move(info)), sm_count_(sm_count) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    const GemmShape& s = args.shape;
    if (s.m == 0 || s.n == 0) return absl::OkStatus();
    if (s.k > kMaxSteps * kSmallTileStepK) {
      return absl::FailedPreconditionError(
          absl::StrCat(info().name, " takes k up to ",
                       kMaxSteps * kSmallTileStepK, ", got ", s.k));
    }
    const int64_t tiles = CountTiles(s, 0);
    if (tiles <= kMaxBlocks) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        info().name, " computes C in tiles of ", kTiles[0], " x ", kTiles[0],
        ", at most ", kMaxBlocks, "; ", s.m, " x ", s.n, " are ", tiles));
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    std::vector<const SgemmArgs*> products;
    products.reserve(problems.size());
    bool is_equal = true;
    for (const SgemmArgs& p : problems) {
      if (p.shape.m == 0 || p.shape.n == 0) continue;
      is_equal =
          is_equal && (products.empty() || products.back()->shape == p.shape);
      products.push_back(&p);
    }
    if (!is_equal) SortForLaunch(products);
    BatchLauncher launcher(ChooseTile(products, sm_count_), products.size(),
                           context.stream);
    for (const SgemmArgs* p : products) {
      absl::Status status = launcher.Add(*p);
      if (!status.ok()) return status;
    }
    return launcher.Launch();
  }

 private:
  const int sm_count_;
};

}  // namespace

MadeKernel MakeSmallTilesSgemm(KernelInfo info) {
  int device = 0;
  int sm_count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  absl::Status runs = CheckKernelRuns(
      reinterpret_cast<const void*>(kKernels<SmallBatchTable>[0][0]));
  if (!runs.ok()) return runs;
  return std::make_unique<const SmallTilesSgemm>(std::move(info), sm_count);
}

}  // namespace gemmd
