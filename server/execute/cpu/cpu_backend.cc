#include "server/execute/cpu/cpu_backend.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/execute/cpu/cpu_device.h"
#include "server/execute/cpu/heap_staging_pool.h"
#include "server/execute/memory_limit.h"

namespace gemmd {
namespace {

// What is touched before the first request.
constexpr size_t kPrefaultBytes = size_t{64} << 20;

std::string ProcessorName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (absl::StartsWith(line, "model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "CPU";
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::unique_ptr<HeapStagingPool> staging,
             std::unique_ptr<Device> device)
      : staging_(std::move(staging)) {
    devices_.push_back(std::move(device));
  }

  absl::string_view name() const override { return "cpu"; }
  MemorySpace kernel_space() const override { return MemorySpace::kHost; }
  std::span<const std::unique_ptr<Device>> devices() const override {
    return devices_;
  }
  StagingPool& staging() override { return *staging_; }

 private:
  std::unique_ptr<HeapStagingPool> staging_;
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(
    const BackendOptions& options, const KernelRegistry& registry) {
  for (const int device : options.devices) {
    if (device != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no device ", device,
                       "; the CPU backend has device 0 alone (--devices)"));
    }
  }
  absl::StatusOr<std::unique_ptr<HeapStagingPool>> staging =
      HeapStagingPool::Create(
          StagingBytesWithin(options.staging_bytes, MemoryLimit()));
  if (!staging.ok()) return staging.status();
  (*staging)->Prefault(kPrefaultBytes);
  absl::StatusOr<std::unique_ptr<HeapStagingPool>> resident =
      HeapStagingPool::Create(
          options.resident_bytes.value_or(ResidentBytesWithin(MemoryLimit())));
  if (!resident.ok()) return resident.status();
  DeviceInfo info;
  info.name = ProcessorName();
  info.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  info.streams = std::max(1, options.streams_per_device);
  info.slowest_flops = 1e7;  // `reference` on a machine that others share
  return std::make_unique<CpuBackend>(
      *std::move(staging),
      std::make_unique<CpuDevice>(std::move(info), registry,
                                  *std::move(resident)));
}

}  // namespace gemmd
