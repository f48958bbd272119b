#include "server/observe/nvml_library.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

// The part of nvml.h that is used here; the toolkit does not always bring it.
constexpr int kSuccess = 0;
constexpr int kTemperatureGpu = 0;
constexpr int kClockSm = 1;
constexpr unsigned long long kXidEvents = 8;  // nvmlEventTypeXidCriticalError
constexpr unsigned int kVersionBytes = 80;
struct Utilization {
  unsigned int gpu;  // percent
  unsigned int memory;
};
struct Memory {
  unsigned long long total;  // bytes
  unsigned long long free;
  unsigned long long used;
};
struct Event {
  void* device;
  unsigned long long type;
  unsigned long long data;  // the XID
  unsigned int gpu_instance;
  unsigned int compute_instance;
};

}  // namespace

struct NvmlLibrary::Functions {
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*handle_by_uuid)(const char*, Device*);
  int (*utilization)(Device, Utilization*);
  int (*memory)(Device, Memory*);
  int (*power)(Device, unsigned int* milliwatts);
  int (*temperature)(Device, int sensor, unsigned int* celsius);
  int (*clock)(Device, int type, unsigned int* megahertz);
  int (*energy)(Device, unsigned long long* millijoules);
  int (*driver_version)(char* text, unsigned int bytes);
  int (*cuda_version)(int* thousands);
  int (*event_set_create)(void** set);
  int (*event_set_free)(void* set);
  int (*register_events)(Device, unsigned long long types, void* set);
  int (*event_set_wait)(void* set, Event*, unsigned int milliseconds);
};

absl::StatusOr<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Load(
    const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  auto functions = std::make_unique<Functions>();
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        dlsym(handle, name));
    if (*function == nullptr) missing = name;
  };
  find("nvmlInit_v2", &functions->init);
  find("nvmlShutdown", &functions->shutdown);
  find("nvmlErrorString", &functions->error_string);
  find("nvmlDeviceGetHandleByUUID", &functions->handle_by_uuid);
  find("nvmlDeviceGetUtilizationRates", &functions->utilization);
  find("nvmlDeviceGetMemoryInfo", &functions->memory);
  find("nvmlDeviceGetPowerUsage", &functions->power);
  find("nvmlDeviceGetTemperature", &functions->temperature);
  find("nvmlDeviceGetClockInfo", &functions->clock);
  find("nvmlDeviceGetTotalEnergyConsumption", &functions->energy);
  find("nvmlSystemGetDriverVersion", &functions->driver_version);
  find("nvmlSystemGetCudaDriverVersion_v2", &functions->cuda_version);
  find("nvmlEventSetCreate", &functions->event_set_create);
  find("nvmlEventSetFree", &functions->event_set_free);
  find("nvmlDeviceRegisterEvents", &functions->register_events);
  find("nvmlEventSetWait_v2", &functions->event_set_wait);
  std::string problem;
  if (missing != nullptr) {
    problem = absl::StrCat(file, " has no ", missing);
  } else if (const int code = functions->init(); code != kSuccess) {
    problem = absl::StrCat("nvmlInit_v2: ", functions->error_string(code));
  }
  if (!problem.empty()) {
    dlclose(handle);
    return absl::UnavailableError(problem);
  }
  return std::unique_ptr<NvmlLibrary>(
      new NvmlLibrary(handle, std::move(functions)));
}

NvmlLibrary::NvmlLibrary(void* handle, std::unique_ptr<Functions> functions)
    : handle_(handle), functions_(std::move(functions)), events_([this] {
        void* set = nullptr;
        return functions_->event_set_create(&set) == kSuccess ? set : nullptr;
      }()) {}

NvmlLibrary::~NvmlLibrary() {
  if (events_ != nullptr) functions_->event_set_free(events_);
  functions_->shutdown();
  dlclose(handle_);
}

absl::StatusOr<NvmlLibrary::Device> NvmlLibrary::FindDevice(
    const std::string& uuid) const {
  Device device = nullptr;
  const int code = functions_->handle_by_uuid(uuid.c_str(), &device);
  if (code == kSuccess) return device;
  return absl::UnavailableError(
      absl::StrCat("nvmlDeviceGetHandleByUUID(\"", uuid,
                   "\"): ", functions_->error_string(code)));
}

GpuSample NvmlLibrary::Sample(Device device) const {
  GpuSample sample;
  if (Utilization rates; functions_->utilization(device, &rates) == kSuccess) {
    sample.utilization_ratio = rates.gpu / 100.0;
  }
  if (Memory memory; functions_->memory(device, &memory) == kSuccess) {
    sample.memory_used_bytes = static_cast<double>(memory.used);
    sample.memory_free_bytes = static_cast<double>(memory.free);
  }
  unsigned int value;
  if (functions_->power(device, &value) == kSuccess) {
    sample.power_watts = value * 1e-3;
  }
  if (functions_->temperature(device, kTemperatureGpu, &value) == kSuccess) {
    sample.temperature_celsius = value;
  }
  if (functions_->clock(device, kClockSm, &value) == kSuccess) {
    sample.sm_clock_hertz = value * 1e6;
  }
  if (unsigned long long energy;
      functions_->energy(device, &energy) == kSuccess) {
    sample.energy_joules = static_cast<double>(energy) * 1e-3;
  }
  return sample;
}

bool NvmlLibrary::WatchXidErrors(Device device) {
  return events_ != nullptr &&
         functions_->register_events(device, kXidEvents, events_) == kSuccess;
}

std::vector<NvmlLibrary::XidError> NvmlLibrary::TakeXidErrors() const {
  std::vector<XidError> errors;
  if (events_ == nullptr) return errors;
  Event event;
  while (functions_->event_set_wait(events_, &event, 0) == kSuccess) {
    errors.push_back({event.device, event.data});
  }
  return errors;
}

std::string NvmlLibrary::DriverVersion() const {
  char text[kVersionBytes];
  const int code = functions_->driver_version(text, sizeof(text));
  return code == kSuccess ? text : "";
}

std::string NvmlLibrary::CudaVersion() const {
  int version;  // 13000: 13.0
  if (functions_->cuda_version(&version) != kSuccess) return "";
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace gemmd
