// ffma_plans: times sm90_ffma with every plan it could choose, for the
// constants in sm90_ffma_plan.cc (fit_plans.py beside this fits them).
//
//   ffma_plans > plans.csv     "chosen" is 1 where PlanFfma takes the plan;
//                              those that copy are measured with B transposed

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "absl/strings/str_format.h"
#include "kernels/cuda/cuda_tuning_device.h"
#include "kernels/cuda/sm90_ffma.h"

namespace gemmd {
namespace {

constexpr const char* kNames[kFfmaKinds] = {
    "stream_k",   "cluster_128", "cluster_96", "cluster_64", "cluster_light",
    "cluster_32", "copy_64",     "copy_light", "copy_32"};
constexpr int64_t kTiles[kFfmaKinds] = {128, 128, 96, 64, 64, 32, 64, 64, 32};

int64_t CeilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

class Plans {
 public:
  Plans(const Sm90Ffma& ffma, CudaTuningDevice* device)
      : ffma_(ffma), device_(device) {}

  void MeasureShape(int64_t m, int64_t n, int64_t k, bool transpose_b = false) {
    for (int kind = 0; kind < kFfmaKinds; ++kind) {
      const int64_t tiles = CeilDiv(m, kTiles[kind]) * CeilDiv(n, kTiles[kind]);
      // Far more tiles than run at once, or far fewer, are never the answer.
      if (kind > 0 && tiles > 700) continue;
      if (CopiesOperands(static_cast<FfmaKind>(kind)) && !transpose_b) continue;
      const int64_t steps = CeilDiv(k, 32);
      const int64_t most =
          kind == 0 ? 1 : std::min<int64_t>(kMaxFfmaSlices, steps);
      for (int slices = 1; slices <= most; ++slices) {
        if (slices > 1 && tiles * slices > 700) break;
        Measure({m, n, k, false, transpose_b},
                {static_cast<FfmaKind>(kind), slices});
      }
    }
  }

 private:
  void Measure(const GemmShape& shape, FfmaPlan plan) {
    const SgemmArgs like = {.shape = shape,
                            .lda = shape.k,
                            .ldb = StoredColsB(shape),
                            .ldc = shape.n};
    FfmaProduct product = {.m = shape.m, .n = shape.n, .k = shape.k};
    if (shape.transpose_b) {
      product.unfit_operands = 1;
      product.unfit_elements = shape.n * shape.k;
    }
    const auto us = device_->MicrosecondsOf(
        [&](std::span<const SgemmArgs> args, const LaunchContext& context) {
          return ffma_.Launch(args[0], plan, context, nullptr);
        },
        ffma_.WorkspaceBytes(like, plan), like, /*products=*/1,
        /*check=*/true);
    if (!us.ok()) {
      absl::FPrintF(stderr, "%d x %d x %d, %s, %d: %s\n", shape.m, shape.n,
                    shape.k, kNames[static_cast<int>(plan.kind)], plan.slices,
                    us.status().ToString());
      std::exit(1);
    }
    const bool chosen = plan == PlanFfma(product, ffma_.device());
    absl::PrintF("%d,%d,%d,%d,%s,%d,%.3f,%d\n", shape.transpose_b, shape.m,
                 shape.n, shape.k, kNames[static_cast<int>(plan.kind)],
                 plan.slices, *us, chosen);
  }

  const Sm90Ffma& ffma_;
  CudaTuningDevice* const device_;
};

int Run() {
  const auto ffma = Sm90Ffma::Create();
  auto device = CudaTuningDevice::Create();
  if (!ffma.ok() || !device.ok()) {
    absl::FPrintF(stderr, "ffma_plans: %s\n",
                  (ffma.ok() ? device.status() : ffma.status()).ToString());
    return 1;
  }
  for (int kind = 1; kind < kFfmaKinds; ++kind) {
    absl::FPrintF(stderr, "%s at once:", kNames[kind]);
    for (int slices = 1; slices <= kMaxFfmaSlices; ++slices) {
      absl::FPrintF(
          stderr, " %d",
          ffma->device().Clusters(static_cast<FfmaKind>(kind), slices));
    }
    absl::FPrintF(stderr, "\n");
  }
  absl::PrintF("tb,m,n,k,plan,slices,us,chosen\n");
  Plans plans(*ffma, device->get());
  for (const int64_t size : {64, 128, 192, 256, 320, 384, 448, 512, 576, 640,
                             768, 896, 1000, 1152, 1280, 1536}) {
    for (const int64_t k : {64, 256, 1024, 4096}) {
      plans.MeasureShape(size, size, k);
      if (k < 4096) plans.MeasureShape(size, size, k, /*transpose_b=*/true);
    }
  }
  plans.MeasureShape(2048, 2048, 1024);
  plans.MeasureShape(128, 128, 128);
  plans.MeasureShape(32, 4096, 4096);
  plans.MeasureShape(128, 4096, 4096);
  plans.MeasureShape(256, 256, 65536);
  return 0;
}

}  // namespace
}  // namespace gemmd

int main() { return gemmd::Run(); }
