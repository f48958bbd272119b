// Memory that a client and a server on one host both see, so that a product's
// numbers do not travel at all.
//
//   auto memory = client->ShareMemory(3 * n * n * 4);
//   auto a = memory->Matrix(n, n, 0);
//   auto b = memory->Matrix(n, n, n * n * 4);
//   auto c = memory->Matrix(n, n, 2 * n * n * 4);
//   ...                                            // write A and B
//   client->Sgemm({.a = a, .b = b, .output = c});  // and C is there

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "gemmd/matrix.h"

namespace gemmd {

namespace client {
class SharedBlock;  // the library's own
}

// A block of shared memory, zeros at first, page-aligned. Operands and outputs
// of the client's products that lie in it, whole, are read and written there by
// the server; nothing else about a call changes. So the caller must not write
// to an operand, nor read an output, while the call runs: the server is reading
// and writing at that time.
//
// The memory is a sealed memfd that nobody can find by a name. A server that
// was started anew is told of it again, by itself.
//
// Outlives the calls that use it; may outlive the client. Thread-compatible.
class SharedMemory {
 public:
  SharedMemory() = default;  // of no bytes
  ~SharedMemory();
  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;

  std::byte* data() const;
  size_t bytes() const;

  // A matrix of rows x cols numbers, packed, from `offset` bytes on. Needs:
  // `offset` is a multiple of 4, and all is within bytes().
  MutableMatrixView Matrix(int64_t rows, int64_t cols, size_t offset) const;

 private:
  friend class Client;
  explicit SharedMemory(std::shared_ptr<client::SharedBlock> block);

  std::shared_ptr<client::SharedBlock> block_;
};

}  // namespace gemmd
