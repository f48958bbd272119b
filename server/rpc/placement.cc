#include "server/rpc/placement.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace gemmd {

int ChooseDevice(std::span<const std::shared_ptr<StoredMatrix>> matrices,
                 std::span<const double> outstanding, uint64_t turn,
                 bool copies) {
  const size_t devices = outstanding.size();
  std::vector<double> lacks(devices);
  for (const auto& matrix : matrices) {
    const auto bytes = static_cast<double>(matrix->bytes());
    for (double& lack : lacks) lack += bytes;
    for (const int device : matrix->devices()) lacks[device] -= bytes;
  }
  // What comes first decides.
  const auto cost = [&](size_t device) {
    return copies ? std::pair(lacks[device] + outstanding[device], 0.0)
                  : std::pair(lacks[device], outstanding[device]);
  };
  size_t best = turn % devices;
  for (size_t i = 1; i < devices; ++i) {
    const size_t device = (turn + i) % devices;
    if (cost(device) < cost(best)) best = device;
  }
  return static_cast<int>(best);
}

}  // namespace gemmd
