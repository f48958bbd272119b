// What a product costs, for sharing devices between clients and work between
// devices.

#pragma once

#include "server/schedule/task.h"

namespace gemmd {

// In bytes that are moved: of the devices we know, one moves a byte while it
// does about a thousand operations (55 GB/s of PCIe, 50 TFLOP/s of FP32 on an
// H200), and handling a request costs something however small it is. Only
// ratios matter.
inline double CostOf(const Task& task) {
  constexpr double kFlopsOfAByte = 1000;
  constexpr double kBytesOfARequest = 4096;
  return kBytesOfARequest + static_cast<double>(task.bytes()) +
         task.spec().shape.flops() / kFlopsOfAByte;
}

}  // namespace gemmd
