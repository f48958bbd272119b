// The side socket over which clients of the same host share memory; what is
// said there: proto/shared_memory.h.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "server/store/shared_regions.h"

namespace gemmd {

// Listens, registers the region of each client that connects, and takes it away
// when the connection ends, however: a client that is killed too.
//
// Only processes of the server's own user, and root, are served: whoever shares
// memory can make the server slow (by what it does to the pages), and can guess
// nothing.
class RegionSocket {
 public:
  // UNAVAILABLE or INVALID_ARGUMENT, as CheckUnixSocketPath says. `regions`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<RegionSocket>> Listen(
      const std::string& path, SharedRegions* regions);

  // Ends all connections, takes their regions away, removes the socket.
  ~RegionSocket();

 private:
  RegionSocket(std::string path, int listener, int wake,
               SharedRegions* regions);

  void Run();
  void Accept();
  // False: the connection is over.
  bool OnReadable(int fd, std::string* region_id);

  const std::string path_;
  const int listener_;
  const int wake_;  // an eventfd: written to once, at the end
  SharedRegions* const regions_;
  // Of the thread alone: connections, with the id of their region or "".
  std::map<int, std::string> connections_;
  std::thread thread_;
};

}  // namespace gemmd
