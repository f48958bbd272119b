#include "server/warm_up.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/monotonic_time.h"
#include "server/observe/device_sampler.h"
#include "server/observe/logging.h"
#include "server/observe/nvml_library.h"
#include "server/start_log.h"

namespace gemmd {
namespace {

constexpr absl::Duration kSampleInterval = absl::Seconds(2);

}  // namespace

absl::Status WarmDevices(const Backend& backend, Metrics& metrics) {
  for (const auto& device : backend.devices()) {
    const MonotonicTime start = MonotonicClock::now();
    if (absl::Status status = device->Warm(); !status.ok()) return status;
    metrics.SetDevice(device->info(), /*up=*/true);
    LogDeviceReady(backend.name(), device->info(),
                   MonotonicClock::now() - start);
  }
  return absl::OkStatus();
}

void SampleDevices(const Backend& backend, Metrics& metrics) {
  if (!metrics.enabled() || backend.name() != "cuda") return;
  auto library = NvmlLibrary::Load();
  if (!library.ok()) {
    Log(LogLevel::kInfo, "no GPU samples: NVML is not available",
        {{"reason", std::string(library.status().message())}});
    return;
  }
  std::vector<SampledDevice> sampled;
  for (const auto& device : backend.devices()) {
    sampled.push_back({device->info().index, device->info().uuid});
  }
  metrics.AddSource(std::make_shared<DeviceSampler>(*std::move(library),
                                                    sampled, kSampleInterval));
}

}  // namespace gemmd
