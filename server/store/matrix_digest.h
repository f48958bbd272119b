// The digest by which a client's matrix is known, computed while its bytes come
// in over several streams.

#pragma once

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/mutex.h"

namespace gemmd {

// SHA-256 over the SHA-256s of consecutive blocks of the packed matrix; the
// last block may be short. Both sides can compute the blocks in parallel.
inline constexpr uint64_t kDigestBlockBytes = uint64_t{1} << 20;

using Sha256 = std::array<uint8_t, 32>;

// Hashes the bytes of a range of a matrix, given in order. Blocks that lie in
// the range are hashed as they come; what the range has of the others, at its
// two ends, is kept. So two streams share nothing until they are done, and one
// that is given up leaves no trace.
//
// Thread-compatible.
class RangeDigest {
 public:
  struct Fragment {
    uint64_t offset;  // in the matrix
    std::string bytes;
  };

  // Of bytes [begin, end) of a matrix of `total` bytes.
  RangeDigest(uint64_t begin, uint64_t end, uint64_t total);

  // Needs: not more bytes than the range has left.
  void Update(std::span<const std::byte> bytes);

 private:
  friend class MatrixDigest;

  struct ContextDeleter {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };

  const uint64_t begin_;
  const uint64_t end_;
  const uint64_t total_;
  uint64_t next_;
  std::unique_ptr<EVP_MD_CTX, ContextDeleter> context_;
  std::vector<std::pair<uint64_t, Sha256>> blocks_;  // index, hash
  std::vector<Fragment> fragments_;                  // at most two
};

// Puts the ranges of a matrix together.
//
// Memory: 32 bytes a block, and the fragments of blocks that are not whole yet,
// at most kMaxHeldBytes.
//
// Thread-safe.
class MatrixDigest {
 public:
  static constexpr size_t kMaxHeldBytes = size_t{64} << 20;

  // `wanted` is what the whole must have: 32 bytes.
  MatrixDigest(uint64_t total, absl::string_view wanted);

  // Adds a range that has all of its bytes. Ranges do not overlap.
  // RESOURCE_EXHAUSTED when the ranges cut too many blocks.
  absl::Status Add(RangeDigest range) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether every byte has been added and the whole is what was wanted.
  bool Matches() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Fragments = std::map<uint64_t, std::string>;  // by offset

  void SetBlock(uint64_t index, const Sha256& hash)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AddFragment(RangeDigest::Fragment fragment)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t total_;
  const std::string wanted_;
  mutable Mutex mu_;
  std::vector<Sha256> blocks_ ABSL_GUARDED_BY(mu_);
  uint64_t missing_blocks_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Fragments> cut_blocks_ ABSL_GUARDED_BY(mu_);
  size_t held_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool matches_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace gemmd
