// NVIDIA's management library, loaded at run time where there is one.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd {

// What a GPU says of itself; nullopt for what this one does not tell.
struct GpuSample {
  std::optional<double> utilization_ratio;  // 0 to 1: time with a kernel on it
  std::optional<double> memory_used_bytes;
  std::optional<double> memory_free_bytes;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hertz;
  std::optional<double> energy_joules;  // since the driver was loaded
};

// Thread-safe, as NVML is.
class NvmlLibrary {
 public:
  // A device of NVML's; valid as long as the library.
  using Device = void*;

  // An error that the driver reported of a device, by its XID number.
  struct XidError {
    Device device;
    uint64_t xid;
  };

  // Loads and initialises `file`. UNAVAILABLE with the reason when it is not
  // there, lacks a function or finds no driver.
  static absl::StatusOr<std::unique_ptr<NvmlLibrary>> Load(
      const std::string& file = "libnvidia-ml.so.1");

  ~NvmlLibrary();

  // `uuid` as "GPU-...". UNAVAILABLE if NVML does not know it.
  absl::StatusOr<Device> FindDevice(const std::string& uuid) const;

  // Some milliseconds of driver calls: never on the way of a request.
  GpuSample Sample(Device device) const;

  // From now on TakeXidErrors tells of the device; false if NVML will not, as
  // on GPUs and in containers that have no events.
  bool WatchXidErrors(Device device);

  // Those since the last call. Does not wait.
  std::vector<XidError> TakeXidErrors() const;

  // As "580.65.06"; empty if NVML does not say.
  std::string DriverVersion() const;

  // The newest CUDA that the driver runs, as "13.0"; empty if NVML does not
  // say.
  std::string CudaVersion() const;

 private:
  struct Functions;
  NvmlLibrary(void* handle, std::unique_ptr<Functions> functions);

  void* const handle_;
  const std::unique_ptr<Functions> functions_;
  void* const events_;  // null: there are none
};

}  // namespace gemmd
