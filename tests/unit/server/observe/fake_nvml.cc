// A stand-in for libnvidia-ml.so.1: one GPU, "GPU-fake", that does not tell its
// energy and has had two XID errors. FAKE_NVML_INIT makes nvmlInit_v2 return
// that code; FAKE_NVML_EVENTS makes event sets fail with it.

#include <cstdlib>
#include <cstring>

extern "C" {

int nvmlInit_v2() {
  const char* code = std::getenv("FAKE_NVML_INIT");
  return code == nullptr ? 0 : std::atoi(code);
}
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int code) {
  return code == 9 ? "Driver Not Loaded" : "Not Found";
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int gpu;
  *device = &gpu;
  return std::strcmp(uuid, "GPU-fake") == 0 ? 0 : 6;
}
int nvmlDeviceGetUtilizationRates(void*, unsigned int* percent) {
  percent[0] = 25;
  percent[1] = 99;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* bytes) {
  bytes[0] = 1000;
  bytes[1] = 600;
  bytes[2] = 400;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned int* milliwatts) {
  static unsigned int calls = 0;
  *milliwatts = 1000 * ++calls;  // the number of samples, as watts
  return 0;
}
int nvmlDeviceGetTemperature(void*, int sensor, unsigned int* celsius) {
  *celsius = 60;
  return sensor == 0 ? 0 : 2;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned int* megahertz) {
  *megahertz = 1980;
  return type == 1 ? 0 : 2;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long*) {
  return 3;  // not supported
}
int nvmlSystemGetDriverVersion(char* text, unsigned int bytes) {
  std::strncpy(text, "580.65.06", bytes);
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12040;
  return 0;
}

namespace {
void* watched = nullptr;
int pending = 0;
}  // namespace

int nvmlEventSetCreate(void** set) {
  *set = &pending;
  const char* code = std::getenv("FAKE_NVML_EVENTS");
  return code == nullptr ? 0 : std::atoi(code);
}
int nvmlEventSetFree(void*) { return 0; }
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  watched = device;
  pending = 2;
  return types == 8 ? 0 : 2;
}
int nvmlEventSetWait_v2(void*, void* event, unsigned int milliseconds) {
  if (pending == 0 || milliseconds != 0) return 10;  // time out
  const unsigned long long xid = pending-- == 2 ? 31 : 79;
  const struct {
    void* device;
    unsigned long long type;
    unsigned long long data;
    unsigned int instances[2];
  } told = {watched, 8, xid, {0, 0}};
  std::memcpy(event, &told, sizeof(told));
  return 0;
}

}  // extern "C"
