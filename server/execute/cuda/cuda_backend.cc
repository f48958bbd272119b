#include "server/execute/cuda/cuda_backend.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "server/execute/cuda/cuda_device.h"
#include "server/execute/cuda/handles.h"
#include "server/execute/device_choice.h"
#include "server/execute/memory_limit.h"
#include "server/execute/slab_staging_pool.h"

namespace gemmd {
namespace {

// One batch copies in, one computes, one copies out, and one waits for none of
// them.
constexpr int kDefaultStreams = 4;

class CudaBackend : public Backend {
 public:
  // `ordinal` is the device whose context pins memory, for all of them.
  CudaBackend(std::unique_ptr<SlabStagingPool> staging, int ordinal)
      : staging_(std::move(staging)), ordinal_(ordinal) {}

  absl::string_view name() const override { return "cuda"; }
  MemorySpace kernel_space() const override { return MemorySpace::kDevice; }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return *staging_; }
  absl::Status Pin(std::byte* data, size_t bytes) override {
    absl::Status status = UseDevice(ordinal_);
    if (!status.ok()) return status;
    status = CudaStatus(cudaHostRegister(data, bytes, cudaHostRegisterPortable),
                        "cudaHostRegister");
    cudaGetLastError();  // a refusal is not the next launch's error
    return status;
  }
  void Unpin(std::byte* data) override {
    if (!UseDevice(ordinal_).ok()) return;
    cudaHostUnregister(data);
    cudaGetLastError();
  }

  void Add(std::unique_ptr<Device> device) {
    devices_.push_back(std::move(device));
  }

 private:
  std::unique_ptr<SlabStagingPool> staging_;  // before the devices: outlives
  const int ordinal_;
  std::vector<std::unique_ptr<Device>> devices_;
};

// A device can be listed and yet be unusable (taken, broken, of another
// driver's making): only what it does counts.
absl::Status Probe(int ordinal) {
  if (absl::Status status = UseDevice(ordinal); !status.ok()) return status;
  constexpr uint32_t kPattern = 0x5a5aa5a5;
  uint32_t value = kPattern;
  absl::StatusOr<DeviceMemory> memory = MakeDeviceMemory(sizeof(value));
  absl::Status status = memory.status();
  if (status.ok()) {
    status = CudaStatus(cudaMemcpy(memory->get(), &value, sizeof(value),
                                   cudaMemcpyHostToDevice),
                        "cudaMemcpy");
  }
  value = 0;
  if (status.ok()) {
    status = CudaStatus(cudaMemcpy(&value, memory->get(), sizeof(value),
                                   cudaMemcpyDeviceToHost),
                        "cudaMemcpy");
  }
  if (status.ok() && value != kPattern) {
    status = absl::InternalError("a copy there and back changed the data");
  }
  if (status.ok()) return status;
  cudaGetLastError();
  return status;
}

// Of a device that answers.
std::string Model(int ordinal) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
    cudaGetLastError();
    return "unknown";
  }
  return absl::StrCat(properties.name, ", ", properties.multiProcessorCount,
                      " multiprocessors");
}

// As NVML and nvidia-smi write it: "GPU-", then groups of 8-4-4-4-12 digits.
std::string UuidText(const cudaUUID_t& uuid) {
  const std::string digits =
      absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", digits.substr(0, 8), "-", digits.substr(8, 4),
                      "-", digits.substr(12, 4), "-", digits.substr(16, 4), "-",
                      digits.substr(20));
}

// FP32 lanes of a multiprocessor; 0 where it is not known.
int Fp32Lanes(int major, int minor) {
  if (major == 8) return minor == 0 ? 64 : 128;
  return major >= 9 ? 128 : 0;
}

// Each lane does a multiply and an add a clock. 0 where it is not known.
double PeakFlops(const cudaDeviceProp& properties, int ordinal) {
  int kilohertz = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, ordinal) !=
      cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 2.0 * properties.multiProcessorCount *
         Fp32Lanes(properties.major, properties.minor) * kilohertz * 1e3;
}

absl::StatusOr<DeviceInfo> Describe(int index, int ordinal, int streams) {
  cudaDeviceProp properties;
  absl::Status status = CudaStatus(
      cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  if (!status.ok()) return status;
  DeviceInfo info;
  info.index = index;
  info.name = properties.name;
  info.memory_bytes = properties.totalGlobalMem;
  info.compute_capability =
      absl::StrCat(properties.major, ".", properties.minor);
  info.streams = streams > 0 ? streams : kDefaultStreams;
  info.peak_flops = PeakFlops(properties, ordinal);
  info.uuid = UuidText(properties.uuid);
  return info;
}

// Lets each device reach the others' memory, where the hardware can. Where it
// cannot, copies between them go through the host, which is slower and right.
void ConnectPeers(const std::vector<int>& ordinals) {
  for (const int ordinal : ordinals) {
    if (!UseDevice(ordinal).ok()) continue;
    for (const int other : ordinals) {
      int can = 0;
      if (other == ordinal ||
          cudaDeviceCanAccessPeer(&can, ordinal, other) != cudaSuccess ||
          can == 0) {
        continue;
      }
      cudaDeviceEnablePeerAccess(other, 0);
    }
    cudaGetLastError();  // of what was enabled before, say
  }
}

}  // namespace

bool CudaIsInstalled() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return false;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return error != cudaErrorNoDevice;
}

absl::StatusOr<std::vector<int>> CudaDevices(const BackendOptions& options) {
  const std::vector<int>& wanted = options.devices;
  int count = 0;
  // Without a driver the count is left alone: the return code is what counts.
  absl::Status status =
      CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok() || count == 0) {
    cudaGetLastError();
    return absl::FailedPreconditionError(absl::StrCat(
        "no CUDA device answers", status.ok() ? "" : ": ", status.message()));
  }
  std::vector<int> ordinals = wanted;
  if (ordinals.empty()) {
    ordinals.resize(count);
    std::iota(ordinals.begin(), ordinals.end(), 0);
  }
  for (const int ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= count) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no CUDA device ", ordinal, "; there are 0 to ",
                       count - 1, " (--devices)"));
    }
  }
  return DevicesThatAnswer(ordinals, /*named=*/!wanted.empty(),
                           OfOneModel(&Probe, &Model), options.warn);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const BackendOptions& options, const KernelRegistry& registry) {
  const absl::StatusOr<std::vector<int>> ordinals = CudaDevices(options);
  if (!ordinals.ok()) return ordinals.status();
  const size_t staging_bytes =
      StagingBytesWithin(options.staging_bytes, MemoryLimit());
  absl::StatusOr<std::unique_ptr<SlabStagingPool>> staging =
      SlabStagingPool::Create({.capacity = staging_bytes},
                              [device = ordinals->front()](size_t bytes) {
                                return MakePinnedMemory(device, bytes);
                              });
  if (!staging.ok()) return staging.status();
  auto backend =
      std::make_unique<CudaBackend>(*std::move(staging), ordinals->front());
  for (size_t i = 0; i < ordinals->size(); ++i) {
    const int ordinal = (*ordinals)[i];
    absl::StatusOr<DeviceInfo> info =
        Describe(static_cast<int>(i), ordinal, options.streams_per_device);
    if (!info.ok()) return info.status();
    const size_t request_bytes = options.request_bytes.value_or(
        std::max<size_t>(staging_bytes, info->memory_bytes / 8));
    absl::StatusOr<std::unique_ptr<CudaDevice>> device =
        CudaDevice::Create(*std::move(info), ordinal,
                           {.request_bytes = request_bytes,
                            .resident_bytes = options.resident_bytes},
                           registry, backend->staging());
    if (!device.ok()) return device.status();
    backend->Add(*std::move(device));
  }
  ConnectPeers(*ordinals);
  return backend;
}

}  // namespace gemmd
