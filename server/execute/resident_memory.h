// Device memory that outlives a batch: where a resident matrix's numbers lie.

#pragma once

#include <cstddef>

namespace gemmd {

// A stretch of one device's memory, 256-byte aligned, taken with
// Device::AllocateResident and given back on destruction. Whoever holds it lets
// go only when no copy and no launch uses it any more. What it holds at first
// is indeterminate: who fills it fills all that can be read (I7).
//
// Thread-safety: the accessors are constant; who writes to the memory sees to
// it that nobody reads meanwhile. Destruction from any thread, without waiting
// for the device.
class ResidentMemory {
 public:
  virtual ~ResidentMemory() = default;

  // An address of the device's; on a CPU one of the host's.
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;
  virtual int device() const = 0;  // in Backend::devices()
};

}  // namespace gemmd
