// The sections that time launches: few rows on one B, equal and mixed products.

#include <algorithm>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "tests/bench/batch_bench/batch_bench.h"
#include "tests/bench/batch_bench/cublas_batched.h"
#include "tests/bench/batch_bench/stream_read.h"

namespace gemmd {

// ----- few rows against a large B -----

void BatchBench::Skinny() {
  std::printf(
      "\nFew rows against one B [k, n]; one launch of a CUDA graph's replays, "
      "us\n%-20s%6s%12s%12s%12s%14s%12s\n",
      "B", "rows", "read B", "skinny", "stacked", "cublas", "sm90_ffma");
  struct Shape {
    int64_t n, k;
    bool transpose_b;
  };
  const TimingMethod graph = TimingMethod::kGraph;
  for (const auto& [n, k, tb] :
       {Shape{4096, 4096, false}, Shape{4096, 4096, true},
        Shape{4095, 4096, false}, Shape{4096, 4095, false},
        Shape{4097, 4097, true}, Shape{11008, 4096, false},
        Shape{1024, 4096, false}, Shape{1000, 1000, false}}) {
    for (const int64_t m : {1, 2, 4, 8, 16, 32, 64}) {
      const bool all = n == 4096 && k == 4096;
      if (!all && m != 1 && m != 16 && m != 64) continue;
      const auto sets = MakeSets([&]() -> Batch {
        return {arena_.TakeProduct({m, n, k, false, tb})};
      });
      // The same rows, each a product by itself, as requests have them.
      std::vector<Batch> stacked;
      for (const Batch& set : sets) {
        const SgemmArgs& whole = set[0];
        Batch& rows = stacked.emplace_back();
        for (int64_t i = 0; i < m; ++i) {
          SgemmArgs row = whole;
          row.shape.m = 1;
          row.a = whole.a + i * whole.lda;
          row.c = whole.c + i * whole.ldc;
          rows.push_back(row);
        }
      }
      const double read = Time(graph, sets, [&](int, const Batch& batch) {
        StreamRead(batch[0].b, n * k / 4 * 4, batch[0].c, stream_);
      });
      std::printf(
          "%-20s%6d%12.2f%12.2f%12.2f%14.2f%12.2f\n",
          absl::StrFormat("%d x %d%s", k, n, tb ? ", transposed" : "").c_str(),
          static_cast<int>(m), read, TimeKernel(graph, "skinny", sets),
          TimeKernel(graph, "skinny", stacked),
          TimeKernel(graph, "cublas", sets),
          TimeKernel(graph, "sm90_ffma", sets));
      std::fflush(stdout);
    }
  }
}

// ----- equal products -----

void BatchBench::Equal() {
  std::printf(
      "\nEqual products n^3, operands at equal distances, as the strided "
      "function of cuBLAS needs them, or scattered; a launch, us, of a CUDA "
      "graph's replays and, in brackets, between events with the host's part\n"
      "%-23s%20s%20s%22s%8s%8s\n",
      "batch", "small_tiles", "double_buffered", "cublas strided", "ratio",
      "TF/s");
  const CublasBatched library(cublas_.get());
  struct Equals {
    int64_t n;
    int count;
    bool scattered = false;
  };
  for (const auto& [n, count, scattered] :
       {Equals{16, 4096}, Equals{16, 4096, true}, Equals{16, 256},
        Equals{32, 4096}, Equals{32, 4096, true}, Equals{32, 256},
        Equals{48, 1024}, Equals{64, 1024}, Equals{64, 1024, true},
        Equals{64, 64}, Equals{96, 512}, Equals{100, 512}, Equals{101, 512},
        Equals{128, 512}, Equals{128, 32}, Equals{192, 256}, Equals{256, 128},
        Equals{256, 16}}) {
    const auto sets = MakeSets([&, n = n, count = count] {
      Batch batch;
      for (int i = 0; i < count; ++i) {
        batch.push_back(arena_.TakeProduct({n, n, n}));
      }
      return batch;
    });
    auto ours = sets;
    std::mt19937 random(1);
    for (Batch& batch : ours) {
      if (scattered) std::ranges::shuffle(batch, random);
    }
    const auto strided = [&](int, const Batch& batch) {
      library.Strided(batch);
    };
    double us[3][2];
    for (const int events : {0, 1}) {
      const auto method = events ? TimingMethod::kEvents : TimingMethod::kGraph;
      us[0][events] = TimeKernel(method, "small_tiles", ours);
      us[1][events] = TimeKernel(method, "double_buffered", ours);
      us[2][events] = Time(method, sets, strided);
    }
    std::printf(
        "%-23s%11.2f (%6.1f)%11.2f (%6.1f)%13.2f (%6.1f)%8.2f%8.2f\n",
        absl::StrFormat("%d^3 x %d%s", n, count, scattered ? ", scattered" : "")
            .c_str(),
        us[0][0], us[0][1], us[1][0], us[1][1], us[2][0], us[2][1],
        us[2][0] / us[0][0],
        count * GemmShape{n, n, n}.flops() / us[0][0] * 1e-6);
    std::fflush(stdout);
  }
}

// ----- mixed products -----

void BatchBench::Mixed() {
  std::printf(
      "\n256 products of random m, n and k; a launch, us, between events with "
      "the host's part and, in brackets, of a CUDA graph's replays\n"
      "%-12s%20s%18s%16s%14s%8s%8s\n",
      "sizes", "small_tiles", "double_buffered", "cublas grouped",
      "cublas each", "ratio", "TF/s");
  const CublasBatched library(cublas_.get());
  const TimingMethod events = TimingMethod::kEvents;
  for (const auto& [low, high] :
       {std::pair(16, 64), std::pair(16, 256), std::pair(64, 512)}) {
    std::mt19937 random(low + high);
    std::uniform_int_distribution<int64_t> size(low, high);
    double flops = 0;
    const auto sets = MakeSets([&] {
      Batch batch;
      for (int i = 0; i < 256; ++i) {
        batch.push_back(
            arena_.TakeProduct({size(random), size(random), size(random)}));
        flops += batch.back().shape.flops();
      }
      return batch;
    });
    flops /= static_cast<double>(sets.size());
    std::vector<CublasBatched::Groups> groups;
    for (const Batch& batch : sets) groups.emplace_back(batch);
    const double ours = TimeKernel(events, "small_tiles", sets);
    const double device = TimeKernel(TimingMethod::kGraph, "small_tiles", sets);
    const double grouped = Time(
        events, sets, [&](int i, const Batch&) { library.Grouped(groups[i]); });
    std::printf("%-12s%11.2f (%6.1f)%18.2f%16.2f%14.2f%8.2f%8.2f\n",
                absl::StrFormat("%d..%d", low, high).c_str(), ours, device,
                TimeKernel(events, "double_buffered", sets), grouped,
                TimeKernel(events, "cublas", sets), grouped / ours,
                flops / ours * 1e-6);
    std::fflush(stdout);
  }
}

}  // namespace gemmd
