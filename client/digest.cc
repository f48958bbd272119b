#include "client/digest.h"

#include <openssl/sha.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "client/packed_rows.h"
#include "client/sgemm_check.h"

namespace gemmd::client {
namespace {

constexpr size_t kBlock = kChunkBytes / sizeof(float);  // in numbers
constexpr size_t kMaxThreads = 8;
// A thread costs some 50 us, a block 500.
constexpr size_t kBlocksPerThread = 4;

void HashBlock(const MatrixView& x, size_t first, size_t count,
               std::vector<float>* scratch, unsigned char* hash) {
  const float* numbers = InPlace(x, first, count);
  if (numbers == nullptr) {
    scratch->resize(kBlock);
    CopyPacked(x, first, count, scratch->data());
    numbers = scratch->data();
  }
  SHA256(reinterpret_cast<const unsigned char*>(numbers), sizeof(float) * count,
         hash);
}

}  // namespace

std::string Digest(const MatrixView& x) {
  const size_t total = PackedBytes(x) / sizeof(float);
  const size_t blocks = (total + kBlock - 1) / kBlock;
  std::vector<unsigned char> hashes(blocks * SHA256_DIGEST_LENGTH);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    std::vector<float> scratch;
    for (size_t i = next++; i < blocks; i = next++) {
      HashBlock(x, i * kBlock, std::min(kBlock, total - i * kBlock), &scratch,
                hashes.data() + i * SHA256_DIGEST_LENGTH);
    }
  };
  {
    const size_t threads =
        std::min({size_t{std::thread::hardware_concurrency()}, kMaxThreads,
                  blocks / kBlocksPerThread});
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(hashes.data(), hashes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

}  // namespace gemmd::client
