// batch_bench: what several products at once cost, beside cuBLAS's own ways.
//
//   batch_bench [--seconds 0.05] [--section skinny|equal|mixed|bits]...
//
// Prints tables; every time is the median of a launch in microseconds. Products
// are checked by kernel_bench and the tests, not here.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/registry.h"
#include "server/observe/build_info.h"
#include "tests/bench/batch_bench/arena.h"
#include "tests/bench/batch_bench/cublas_batched.h"
#include "tests/bench/batch_bench/stream_read.h"
#include "tests/bench/kernel_bench/stopwatch.h"

namespace gemmd {
namespace {

constexpr int64_t kArenaFloats = int64_t{3} << 28;
constexpr int64_t kBeyondL2 = int64_t{32} << 20;  // floats: twice 64 MB

// The products of one launch.
using Batch = std::vector<SgemmArgs>;

class BatchBench {
 public:
  explicit BatchBench(double seconds)
      : seconds_(seconds),
        registry_(KernelRegistry::Create()),
        arena_(kArenaFloats),
        cublas_workspace_(AllocateOnDevice<char>(kCublasWorkspaceBytes)) {
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
          "cudaStreamCreate");
    const auto library = CublasLibrary::Get();
    auto handle = library.ok() ? (*library)->CreateHandle(
                                     stream_, cublas_workspace_.get(),
                                     kCublasWorkspaceBytes)
                               : absl::StatusOr<CublasHandle>(library.status());
    if (!handle.ok()) {
      std::fprintf(stderr, "batch_bench: %s\n",
                   handle.status().ToString().c_str());
      std::exit(1);
    }
    cublas_ = *std::move(handle);
  }
  ~BatchBench() {
    cublas_ = {};
    cudaStreamDestroy(stream_);
  }

  void Skinny();
  void Equal();
  void Mixed();
  void Bits();

 private:
  // Batches made by `make` until their operands pass twice the L2 cache.
  std::vector<Batch> MakeSets(const std::function<Batch()>& make) {
    arena_.Reset(++seed_);
    std::vector<Batch> sets;
    while (sets.size() < 2 || kArenaFloats - arena_.left() < kBeyondL2) {
      sets.push_back(make());
    }
    return sets;
  }

  double Time(TimingMethod method, const std::vector<Batch>& sets,
              const std::function<void(int, const Batch&)>& run) {
    const int count = static_cast<int>(sets.size());
    const LaunchNumber launch = [&](int i) { run(i % count, sets[i % count]); };
    const double us = EstimateMicroseconds(launch, stream_);
    return TimeLaunches(method, launch, count, us, seconds_, stream_).us_median;
  }

  // The time of a kernel of ours; 0 where it cannot run here.
  double TimeKernel(TimingMethod method, const char* name,
                    const std::vector<Batch>& sets) {
    const auto kernel = registry_.Find(name);
    if (!kernel.ok()) return 0;
    ReserveWorkspace(**kernel, sets);
    return Time(method, sets,
                [&](int, const Batch& batch) { Launch(**kernel, batch); });
  }

  void ReserveWorkspace(const SgemmKernel& kernel,
                        const std::vector<Batch>& sets) {
    workspace_bytes_ = 256;
    for (const Batch& batch : sets) {
      workspace_bytes_ =
          std::max(workspace_bytes_, kernel.WorkspaceBytes(batch));
    }
    workspace_ = AllocateOnDevice<char>(workspace_bytes_);
  }

  void Launch(const SgemmKernel& kernel, std::span<const SgemmArgs> batch) {
    const absl::Status status =
        kernel.Launch(batch, {.stream = stream_,
                              .cublas = cublas_.get(),
                              .workspace = workspace_.get(),
                              .workspace_bytes = workspace_bytes_});
    if (status.ok()) return;
    std::fprintf(stderr, "batch_bench: %s\n", status.ToString().c_str());
    std::exit(1);
  }

  std::vector<float> Read(const SgemmArgs& args) {
    Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    std::vector<float> c(args.shape.m * args.shape.n);
    Check(cudaMemcpy(c.data(), args.c, c.size() * sizeof(float),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    return c;
  }
  double ShareOfOtherBits(const Batch& batch,
                          const std::vector<std::vector<float>>& want);

  const double seconds_;
  const KernelRegistry registry_;
  Arena arena_;
  DeviceArray<char> cublas_workspace_;
  cudaStream_t stream_ = nullptr;
  CublasHandle cublas_;
  DeviceArray<char> workspace_;
  size_t workspace_bytes_ = 0;
  uint32_t seed_ = 0;
};

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
      "\nEqual products n^3, operands apart; a launch, us, of a CUDA graph's "
      "replays and, in brackets, between events with the host's part\n"
      "%-12s%20s%20s%22s%8s%8s\n",
      "batch", "small_tiles", "double_buffered", "cublas strided", "ratio",
      "TF/s");
  const CublasBatched library(cublas_.get());
  for (const auto& [n, count] :
       std::vector<std::pair<int64_t, int>>{{16, 4096},
                                            {16, 256},
                                            {32, 4096},
                                            {32, 256},
                                            {48, 1024},
                                            {64, 1024},
                                            {64, 64},
                                            {96, 512},
                                            {100, 512},
                                            {101, 512},
                                            {128, 512},
                                            {128, 32},
                                            {192, 256},
                                            {256, 128},
                                            {256, 16}}) {
    const auto sets = MakeSets([&, n = n, count = count] {
      Batch batch;
      for (int i = 0; i < count; ++i) {
        batch.push_back(arena_.TakeProduct({n, n, n}));
      }
      return batch;
    });
    const auto strided = [&](int, const Batch& batch) {
      library.Strided(batch);
    };
    double us[3][2];
    for (const int events : {0, 1}) {
      const auto method = events ? TimingMethod::kEvents : TimingMethod::kGraph;
      us[0][events] = TimeKernel(method, "small_tiles", sets);
      us[1][events] = TimeKernel(method, "double_buffered", sets);
      us[2][events] = Time(method, sets, strided);
    }
    std::printf("%-12s%11.2f (%6.1f)%11.2f (%6.1f)%13.2f (%6.1f)%8.2f%8.2f\n",
                absl::StrFormat("%d^3 x %d", n, count).c_str(), us[0][0],
                us[0][1], us[1][0], us[1][1], us[2][0], us[2][1],
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

}  // namespace
}  // namespace gemmd

int main(int argc, char** argv) {
  CLI::App app("Times batches of products beside cuBLAS's own");
  double seconds = 0.05;
  std::vector<std::string> sections = {"skinny", "equal", "mixed", "bits"};
  app.add_option("--seconds", seconds, "of timing for each figure")
      ->capture_default_str();
  app.add_option("--section", sections, "what to measure (default: all)")
      ->check(CLI::IsMember(sections));
  CLI11_PARSE(app, argc, argv);

  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "batch_bench: no CUDA device: %s\n",
                 cudaGetErrorString(error));
    return 1;
  }
  gemmd::BatchBench bench(seconds);
  const auto library = gemmd::CublasLibrary::Get();
  cudaDeviceProp properties;
  gemmd::Check(cudaGetDeviceProperties(&properties, 0),
               "cudaGetDeviceProperties");
  std::printf("%s, CUDA %s, cuBLAS %s, commit %s\n", properties.name,
              std::string(gemmd::BuildCuda()).c_str(),
              (*library)->version().c_str(),
              std::string(gemmd::BuildRevision()).c_str());
  for (const std::string& section : sections) {
    if (section == "skinny") bench.Skinny();
    if (section == "equal") bench.Equal();
    if (section == "mixed") bench.Mixed();
    if (section == "bits") bench.Bits();
  }
}
