#include "kernels/cuda/cuda_kernels.h"

#include <cuda_runtime.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/ladder.h"
#include "kernels/cuda/sm90_kernels.h"

namespace gemmd {
namespace {

// "" where a device answers, else what is missing. Without a driver
// cudaGetDeviceCount leaves the count alone: its return code is what counts.
std::string MissingDevice(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();  // or the next call would report it again
    return absl::StrCat("no CUDA device: ", cudaGetErrorString(error));
  }
  if (count == 0) return "no CUDA device";
  return device < count ? "" : absl::StrCat("no CUDA device ", device);
}

MadeKernel Make(const KernelInfo& info) {
  struct Maker {
    absl::string_view name;
    MadeKernel (*make)(KernelInfo);
  };
  static constexpr Maker kMakers[] = {
      {"naive", &MakeNaiveSgemm},
      {"block_tiled", &MakeBlockTiledSgemm},
      {"conflict_free", &MakeConflictFreeSgemm},
      {"double_buffered", &MakeDoubleBufferedSgemm},
      {"small_tiles", &MakeSmallTilesSgemm},
      {"skinny", &MakeSkinnySgemm},
      {"cublas", &MakeCublasSgemm},
      {"sm90_ffma", &MakeSm90FfmaSgemm},
      {"sm90_bf16x6", &MakeSm90Bf16x6Sgemm},
  };
  for (const Maker& maker : kMakers) {
    if (maker.name == info.name) return maker.make(info);
  }
  std::abort();  // an info without a maker: a mistake in this folder
}

}  // namespace

std::vector<KernelEntry> CudaKernelEntries(int device) {
  const std::string missing_device = MissingDevice(device);
  // Each looks at the current device. One that cannot be chosen fails them.
  if (missing_device.empty()) (void)cudaSetDevice(device);
  std::vector<KernelEntry> entries;
  for (KernelInfo& info : CudaKernelInfos()) {
    MadeKernel made = missing_device.empty()
                          ? Make(info)
                          : absl::FailedPreconditionError(missing_device);
    if (!made.ok()) {
      entries.push_back(UnavailableEntry(std::move(info), made.status()));
      continue;
    }
    KernelEntry& entry = entries.emplace_back();
    entry.info = std::move(info);
    entry.kernel = *std::move(made);
  }
  return entries;
}

}  // namespace gemmd
