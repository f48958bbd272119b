// Host memory that a client shares with the server.

#pragma once

#include <cstddef>
#include <memory>

namespace gemmd {

// A piece of a client's shared-memory region. The region stays mapped, and
// registered with the devices, as long as `region` is held. The client may
// write to it at any time: numbers read from it are whatever they are, and
// nothing but numbers is ever read from it.
struct HostSlice {
  std::shared_ptr<const void> region;  // null: no slice
  std::byte* data = nullptr;           // 4-byte aligned at least

  explicit operator bool() const { return region != nullptr; }
};

}  // namespace gemmd
