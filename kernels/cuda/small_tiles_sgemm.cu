// small_tiles: for products too small to fill the chip with large tiles, alone
// or by the thousand, equal or mixed, in one launch. Small tiles give a small
// product many blocks and a multiprocessor many products, large ones read less;
// each gives the ladder's bits, so that which one a batch gets may depend on
// the batch (small_tiles_plan.h).

#include <array>
#include <cstddef>
#include <cstdint>
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
#include "kernels/cuda/small_tiles_plan.h"
#include "kernels/cuda/table_sgemm.h"

namespace gemmd {
namespace {

// A tile's kernels by transposes; null where it is not compiled for them.
using Kernels = std::array<const void*, 4>;

template <int kTile, int kTransposes, typename Table>
constexpr const void* KernelOf() {
  constexpr SmallTile kOf = kSmallTiles[kTile];
  if constexpr ((kOf.transposes >> kTransposes & 1) == 0) {
    return nullptr;
  } else {
    using Shape = SmallTileShape<kOf.m, kOf.n, kOf.warps, kOf.blocks>;
    return reinterpret_cast<const void*>(
        &SmallTiles<Shape, kTransposes % 2 != 0, kTransposes / 2 != 0, Table>);
  }
}

template <typename Table>
const void* KernelFor(int tile, int transposes) {
  static const auto kAll = []<size_t... kTile>(std::index_sequence<kTile...>) {
    return std::array<Kernels, kSmallTileCount>{
        Kernels{KernelOf<kTile, 0, Table>(), KernelOf<kTile, 1, Table>(),
                KernelOf<kTile, 2, Table>(), KernelOf<kTile, 3, Table>()}...};
  }
  (std::make_index_sequence<kSmallTileCount>());
  return kAll[tile][transposes];
}

// Enqueues `blocks` of the kernel that `tile` and `transposes` name. If
// `overlaps`, it may begin before the launch before it on the stream has ended.
template <typename Table>
absl::Status LaunchTable(Table& table, int tile, int transposes, int64_t blocks,
                         bool overlaps, CUstream_st* stream) {
  const void* const kernel = KernelFor<Table>(tile, transposes);
  void* parameters[] = {&table};
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(32 * kSmallTiles[tile].warps);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = overlaps ? 1 : 0;
  absl::Status status = CudaStatus(
      cudaLaunchKernelExC(&config, kernel, parameters), "cudaLaunchKernelExC");
  status.Update(CudaStatus(cudaPeekAtLastError(), "after cudaLaunchKernelExC"));
  return status;
}

class SmallTilesSgemm final : public SgemmKernel {
 public:
  SmallTilesSgemm(KernelInfo info, int sm_count)
      : SgemmKernel(std::move(info)), sm_count_(sm_count) {}

  absl::Status Supports(const SgemmArgs& args) const override {
    const GemmShape& s = args.shape;
    if (s.m == 0 || s.n == 0) return absl::OkStatus();
    if (s.k > kMaxSmallTileK) {
      return absl::FailedPreconditionError(absl::StrCat(
          info().name, " takes k up to ", kMaxSmallTileK, ", got ", s.k));
    }
    const SmallTile& tile = kSmallTiles[0];
    const int64_t tiles = CountTiles(s, tile);
    if (tiles <= kMaxSmallTileBlocks) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(info().name, " computes C in tiles of ", tile.m, " x ",
                     tile.n, ", at most ", kMaxSmallTileBlocks, "; ", s.m,
                     " x ", s.n, " are ", tiles));
  }

  absl::Status Launch(std::span<const SgemmArgs> problems,
                      const LaunchContext& context) const override {
    std::vector<const SgemmArgs*> products;
    products.reserve(problems.size());
    for (const SgemmArgs& p : problems) {
      if (p.shape.m != 0 && p.shape.n != 0) products.push_back(&p);
    }
    bool overlaps = false;
    for (const AlikeProducts& part : PartProducts(products, sm_count_)) {
      absl::Status status = LaunchAlike(part, overlaps, context.stream);
      if (!status.ok()) return status;
      overlaps = true;
    }
    return absl::OkStatus();
  }

 private:
  // In as many launches as it takes; those after the first, or all if
  // `overlaps`, do not wait for the one before, which computes other products
  // of the same Launch.
  static absl::Status LaunchAlike(const AlikeProducts& part, bool overlaps,
                                  CUstream_st* stream) {
    auto [products, tile] = part;
    const int transposes = TransposesOf(products[0]->shape);
    while (!products.empty()) {
      LargeBatchTable table;
      const BatchPart filled =
          FillBatchTable(products, kSmallTiles[tile], table);
      SmallBatchTable small;
      const bool is_small =
          SmallBatchTable::Fits(table.shape_count, table.entry_count);
      if (is_small) small.CopyFrom(table);
      absl::Status status = is_small
                                ? LaunchTable(small, tile, transposes,
                                              filled.blocks, overlaps, stream)
                                : LaunchTable(table, tile, transposes,
                                              filled.blocks, overlaps, stream);
      if (!status.ok()) return status;
      products = products.subspan(filled.products);
      overlaps = true;
    }
    return absl::OkStatus();
  }

  const int sm_count_;
};

}  // namespace

MadeKernel MakeSmallTilesSgemm(KernelInfo info) {
  int device = 0;
  int sm_count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sm_count, cudaDevAttrMultiProcessorCount, device);
  absl::Status runs = CheckKernelRuns(KernelFor<SmallBatchTable>(0, 0));
  if (!runs.ok()) return runs;
  return std::make_unique<const SmallTilesSgemm>(std::move(info), sm_count);
}

}  // namespace gemmd
