// How much memory this process may have.

#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace gemmd {

// The memory limit of the process's control group, version 2 or 1, as its files
// under `root` say; nullopt if there is none. Memory pinned or touched past it
// would end the process, not the request.
std::optional<size_t> ContainerMemoryLimit(
    const std::string& root = "/sys/fs/cgroup");

// Staging memory of at most `wanted` bytes that leaves half of the container's
// memory to everything else.
size_t StagingBytesWithin(size_t wanted, std::optional<size_t> container_limit);

}  // namespace gemmd
