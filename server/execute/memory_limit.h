// How much memory this process may have.

#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace gemmd {

// The least memory limit of the process's control group and those around it,
// version 2 or 1: the groups that `membership` names, as files under `root`;
// nullopt if there is none. Memory pinned or touched past it would end the
// process, not the request.
std::optional<size_t> ContainerMemoryLimit(
    const std::string& root = "/sys/fs/cgroup",
    const std::string& membership = "/proc/self/cgroup");

// What this process can have at most: its container's limit, or all memory of
// the machine.
size_t MemoryLimit();

// Staging memory of at most `wanted` bytes that leaves half of `limit` to
// everything else.
size_t StagingBytesWithin(size_t wanted, size_t limit);

// For resident matrices, where nobody says: an eighth of `limit`, since staging
// memory and messages may take three quarters.
size_t ResidentBytesWithin(size_t limit);

// For messages that are received and not yet staged: 4 GiB, or a quarter of the
// container's memory where that is less.
size_t ReceiveBytesWithin(std::optional<size_t> container_limit);

}  // namespace gemmd
