#include "server/execute/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd {
namespace {

// Version 1 says "no limit" with a number near 2^63.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

// Takes the limit in `file`, if it has one, into `least`.
void Lower(const std::string& file, std::optional<size_t>& least) {
  std::ifstream stream(file);
  uint64_t bytes = 0;  // stays so where the file says "max"
  if (stream >> bytes && bytes < kUnlimited) {
    least = least ? std::min<size_t>(*least, bytes) : bytes;
  }
}

// The paths of the process's memory groups: "0::/path" in version 2,
// "4:memory:/path" in version 1. "" is the root, which counts always.
std::vector<std::string> Groups(const std::string& membership) {
  std::vector<std::string> groups = {""};
  std::ifstream stream(membership);
  for (std::string line; std::getline(stream, line);) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && (parts[1].empty() || parts[1] == "memory")) {
      groups.push_back(parts[2]);
    }
  }
  return groups;
}

}  // namespace

std::optional<size_t> ContainerMemoryLimit(const std::string& root,
                                           const std::string& membership) {
  std::optional<size_t> least;
  for (std::string group : Groups(membership)) {
    while (true) {
      Lower(root + group + "/memory.max", least);
      Lower(absl::StrCat(root, "/memory", group, "/memory.limit_in_bytes"),
            least);
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0
                                                         : group.rfind('/'));
    }
  }
  return least;
}

size_t MemoryLimit() {
  const size_t machine =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(machine, ContainerMemoryLimit().value_or(machine));
}

size_t StagingBytesWithin(size_t wanted, size_t limit) {
  return std::min(wanted, limit / 2);
}

size_t ResidentBytesWithin(size_t limit) { return limit / 8; }

size_t ReceiveBytesWithin(std::optional<size_t> container_limit) {
  constexpr size_t kMost = size_t{4} << 30;
  return container_limit ? std::min(kMost, *container_limit / 4) : kMost;
}

}  // namespace gemmd
