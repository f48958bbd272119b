// skinny_ways: times the ways to compute `skinny` beside each other and cuBLAS,
// for the choice of kSkinnyWay (kernels/cuda/skinny_sgemm.h). Each result is
// compared with a float64 product before it is timed; a wrong one ends it.
//
//   skinny_ways > ways.txt     us, launches of a CUDA graph back to back

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/cuda/skinny_sgemm.h"
#include "kernels/registry.h"
#include "kernels/tuning_device.h"

namespace gemmd {
namespace {

template <typename T>
T OrEnd(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  absl::FPrintF(stderr, "skinny_ways: %s\n", result.status().ToString());
  std::exit(1);
}

int Run() {
  const auto device = OrEnd(CreateCudaTuningDevice());
  const KernelRegistry registry = KernelRegistry::Create();
  const KernelInfo& info = OrEnd(registry.Find("skinny"))->info();
  const auto block_ring = OrEnd(MakeSkinnySgemm(info, SkinnyWay::kBlockRing));
  const auto warp_rings = OrEnd(MakeSkinnySgemm(info, SkinnyWay::kWarpRings));
  const auto cublas = registry.Find("cublas");
  absl::PrintF("%-22s%6s%12s%12s%12s\n", "B [k, n]", "rows", "block_ring",
               "warp_rings", "cublas");
  struct Shape {
    int64_t n, k;
    bool transpose_b;
  };
  for (const auto& [n, k, tb] :
       {Shape{4096, 4096, false}, Shape{4095, 4096, false},
        Shape{4096, 4095, false}, Shape{4096, 4096, true},
        Shape{4097, 4097, true}, Shape{11008, 4096, false},
        Shape{1000, 1000, false}}) {
    for (const int64_t m : {1, 8, 16, 32, 64}) {
      const GemmShape s = {m, n, k, false, tb};
      const SgemmArgs like = {
          .shape = s, .lda = k, .ldb = StoredColsB(s), .ldc = n};
      const auto time = [&](const SgemmKernel& kernel) {
        return OrEnd(device->Microseconds(kernel, like, /*products=*/1));
      };
      absl::PrintF("%-22s%6d%12.2f%12.2f%12.2f\n",
                   absl::StrFormat("%d x %d%s", k, n, tb ? ", transposed" : ""),
                   m, time(*block_ring), time(*warp_rings),
                   cublas.ok() ? time(**cublas) : 0);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gemmd

int main() { return gemmd::Run(); }
