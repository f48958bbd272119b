// The section that compares bits.

#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "tests/bench/batch_bench/batch_bench.h"
#include "tests/bench/batch_bench/cublas_batched.h"

namespace gemmd {

// ----- whether cuBLAS's ways of batching keep its bits -----

double BatchBench::ShareOfOtherBits(
    const Batch& batch, const std::vector<std::vector<float>>& want) {
  size_t other = 0;
  size_t all = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::vector<float> got = Read(batch[i]);
    for (size_t j = 0; j < got.size(); ++j) {
      other += std::memcmp(&got[j], &want[i][j], sizeof(float)) != 0;
    }
    all += got.size();
  }
  return static_cast<double>(other) / static_cast<double>(all);
}

void BatchBench::Bits() {
  const CublasBatched library(cublas_.get());
  const auto kernels = {"cublas", "small_tiles", "skinny"};
  std::printf(
      "\nElements whose bits differ from those of the product alone, %%\n"
      "%-34s%12s%14s%14s\n",
      "what", "cublas", "small_tiles", "skinny");
  const auto row = [&](const std::string& what, const Batch& alone,
                       const auto& together) {
    std::printf("%-34s", what.c_str());
    for (const char* name : kernels) {
      const auto kernel = registry_.Find(name);
      if (!kernel.ok()) continue;
      ReserveWorkspace(**kernel, {alone});
      std::vector<std::vector<float>> want;
      for (const SgemmArgs& args : alone) {
        Launch(**kernel, {&args, 1});
        want.push_back(Read(args));
      }
      for (const SgemmArgs& args : alone) {
        Check(cudaMemset(args.c, 0xff,
                         args.shape.m * args.shape.n * sizeof(float)),
              "cudaMemset");
      }
      together(name, **kernel);
      std::printf("%13.1f", 100 * ShareOfOtherBits(alone, want));
    }
    std::printf("\n");
    std::fflush(stdout);
  };
  const auto equal = [&](int64_t n, int count) {
    arena_.Reset(++seed_);
    Batch batch;
    for (int i = 0; i < count; ++i) {
      batch.push_back(arena_.TakeProduct({n, n, n}));
    }
    return batch;
  };
  for (const int64_t n : {16, 32, 64, 100, 128, 256}) {
    const Batch batch = equal(n, 64);
    row(absl::StrFormat("strided batch, 64 of %d^3", n), batch,
        [&](std::string_view name, const SgemmKernel& kernel) {
          if (name == "cublas") {
            library.Strided(batch);
          } else {
            Launch(kernel, batch);
          }
        });
    row(absl::StrFormat("grouped batch, 64 of %d^3", n), batch,
        [&](std::string_view name, const SgemmKernel& kernel) {
          if (name == "cublas") {
            library.Grouped(CublasBatched::Groups(batch));
            Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
          } else {
            Launch(kernel, batch);
          }
        });
  }
  for (const int64_t k : {256, 1024, 4096}) {
    for (const int64_t m : {1, 4, 16}) {
      arena_.Reset(++seed_);
      const int64_t n = 4096;
      const SgemmArgs whole = arena_.TakeProduct({32 * m, n, k});
      Batch batch;
      for (int i = 0; i < 32; ++i) {
        SgemmArgs part = whole;
        part.shape.m = m;
        part.a = whole.a + i * m * whole.lda;
        part.c = whole.c + i * m * whole.ldc;
        batch.push_back(part);
      }
      row(absl::StrFormat("stacked, 32 of %d x %d x %d", m, n, k), batch,
          [&](std::string_view, const SgemmKernel& kernel) {
            ReserveWorkspace(kernel, {{whole}});
            Launch(kernel, {&whole, 1});
          });
    }
  }
}

}  // namespace gemmd
