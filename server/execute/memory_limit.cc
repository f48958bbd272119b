#include "server/execute/memory_limit.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace gemmd {
namespace {

// Version 1 says "no limit" with a number near 2^63.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

}  // namespace

std::optional<size_t> ContainerMemoryLimit(const std::string& root) {
  for (const char* const file :
       {"/memory.max", "/memory/memory.limit_in_bytes"}) {
    std::ifstream stream(root + file);
    uint64_t bytes = 0;  // stays so where the file says "max"
    if (stream >> bytes && bytes < kUnlimited) return bytes;
  }
  return std::nullopt;
}

size_t StagingBytesWithin(size_t wanted,
                          std::optional<size_t> container_limit) {
  return container_limit ? std::min(wanted, *container_limit / 2) : wanted;
}

}  // namespace gemmd
