// The memory that this client shares with a server of its host.

#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gemmd/matrix.h"

namespace gemmd::client {

// One memfd, mapped, and the connection to the server's side socket
// (proto/shared_memory.h) that keeps its region there.
//
// Thread-safe.
class SharedBlock {
 public:
  // Maps `bytes` and registers them at the side socket of the gRPC socket
  // `path`. UNAVAILABLE when nothing answers there, the server's words when it
  // refuses, RESOURCE_EXHAUSTED when there is no memory.
  static absl::StatusOr<std::shared_ptr<SharedBlock>> Create(
      const std::string& path, size_t bytes);
  ~SharedBlock();
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  std::string region_id() const;

  // Registers again, unless somebody else has since the region had this id.
  absl::Status Renew(const std::string& region_id);

 private:
  SharedBlock(std::string path, size_t bytes, int memfd, std::byte* data);
  absl::Status Register();  // with mu_ held

  const std::string path_;
  const size_t bytes_;
  const int memfd_;
  std::byte* const data_;
  mutable std::mutex mu_;
  int socket_ = -1;        // guarded by mu_
  std::string region_id_;  // guarded by mu_
};

// Where a matrix is in shared memory.
struct SharedPlace {
  std::shared_ptr<SharedBlock> block;  // null: it is not
  size_t offset = 0;
};

// The blocks of a client. Thread-safe.
class SharedBlocks {
 public:
  void Add(const std::shared_ptr<SharedBlock>& block);

  // Where `x` is, from its first number to its last.
  SharedPlace Find(const MatrixView& x) const;

 private:
  mutable std::mutex mu_;
  std::vector<std::weak_ptr<SharedBlock>> blocks_;  // guarded by mu_
};

}  // namespace gemmd::client
