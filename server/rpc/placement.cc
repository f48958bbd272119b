#include "server/rpc/placement.h"

#include <cstddef>
#include <vector>

namespace gemmd {

int ChooseDevice(std::span<const std::shared_ptr<ResidentMatrix>> matrices,
                 std::span<const double> outstanding, uint64_t turn) {
  const size_t devices = outstanding.size();
  std::vector<size_t> held(devices);
  for (const auto& matrix : matrices) {
    for (const int device : matrix->devices()) held[device] += matrix->bytes();
  }
  size_t best = turn % devices;
  for (size_t i = 1; i < devices; ++i) {
    const size_t device = (turn + i) % devices;
    if (held[device] > held[best] ||
        (held[device] == held[best] &&
         outstanding[device] < outstanding[best])) {
      best = device;
    }
  }
  return static_cast<int>(best);
}

}  // namespace gemmd
