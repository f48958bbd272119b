// What a client and the server say on the side socket of shared memory,
// `<unix-socket>.shm`: a SOCK_STREAM unix socket, one region a connection.
//
// The client sends one RegionRequest in one piece, together with one descriptor
// (SCM_RIGHTS): a memfd of at least `bytes` bytes, sealed against shrinking
// (F_SEAL_SHRINK), writable. The server answers one RegionReply. From then on,
// products that come over the unix socket may name slices of the region, by its
// id, until the client closes the connection or dies; products under way keep
// it. Anything else that the client sends ends the connection.
//
// Both are of one machine, so numbers are in its own byte order.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gemmd {

inline constexpr uint32_t kSharedMemoryVersion = 1;
inline constexpr char kSharedMemorySuffix[] = ".shm";
inline constexpr size_t kRegionIdBytes = 16;

struct RegionRequest {
  uint32_t version = kSharedMemoryVersion;
  uint32_t reserved = 0;  // must be 0
  uint64_t bytes = 0;     // from the memfd's start; not 0
};

struct RegionReply {
  uint32_t version = kSharedMemoryVersion;  // the server's
  uint32_t code = 0;  // a google.rpc.Code; 0: the region can be used
  uint8_t region_id[kRegionIdBytes] = {};  // random; zeros on an error
  char message[104] = {};                  // why not; ends with a NUL
};

static_assert(sizeof(RegionRequest) == 16);
static_assert(sizeof(RegionReply) == 128);

}  // namespace gemmd
