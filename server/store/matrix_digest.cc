#include "server/store/matrix_digest.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"

namespace gemmd {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);

uint64_t BlockBegin(uint64_t index) { return index * kDigestBlockBytes; }
uint64_t BlockEnd(uint64_t index, uint64_t total) {
  return std::min(BlockBegin(index + 1), total);
}

// OpenSSL's digest calls fail for lack of memory alone.
void Check(int result) {
  if (result == 1) return;
  std::fputs("gemmd: SHA-256 failed\n", stderr);
  std::abort();
}

void Begin(EVP_MD_CTX* context) {
  Check(EVP_DigestInit_ex(context, EVP_sha256(), nullptr));
}

Sha256 End(EVP_MD_CTX* context) {
  Sha256 hash;
  Check(EVP_DigestFinal_ex(context, hash.data(), nullptr));
  return hash;
}

}  // namespace

RangeDigest::RangeDigest(uint64_t begin, uint64_t end, uint64_t total)
    : begin_(begin),
      end_(end),
      total_(total),
      next_(begin),
      context_(EVP_MD_CTX_new()) {}

void RangeDigest::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t index = next_ / kDigestBlockBytes;
    const uint64_t block_end = BlockEnd(index, total_);
    const size_t size = std::min<uint64_t>(bytes.size(), block_end - next_);
    const bool at_start = next_ == std::max(begin_, BlockBegin(index));
    if (BlockBegin(index) >= begin_ && block_end <= end_) {
      if (at_start) Begin(context_.get());
      Check(EVP_DigestUpdate(context_.get(), bytes.data(), size));
      if (next_ + size == block_end) {
        blocks_.emplace_back(index, End(context_.get()));
      }
    } else {
      if (at_start) fragments_.push_back({next_, ""});
      fragments_.back().bytes.append(
          reinterpret_cast<const char*>(bytes.data()), size);
    }
    next_ += size;
    bytes = bytes.subspan(size);
  }
}

MatrixDigest::MatrixDigest(uint64_t total, absl::string_view wanted)
    : total_(total),
      wanted_(wanted),
      blocks_((total + kDigestBlockBytes - 1) / kDigestBlockBytes),
      missing_blocks_(blocks_.size() + 1) {
  MutexLock lock(&mu_);
  SetBlock(blocks_.size(), {});  // so that none at all are complete too
}

absl::Status MatrixDigest::Add(RangeDigest range) {
  MutexLock lock(&mu_);
  for (const auto& [index, hash] : range.blocks_) SetBlock(index, hash);
  for (RangeDigest::Fragment& fragment : range.fragments_) {
    absl::Status status = AddFragment(std::move(fragment));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool MatrixDigest::Matches() const {
  MutexLock lock(&mu_);
  return matches_;
}

void MatrixDigest::SetBlock(uint64_t index, const Sha256& hash) {
  if (index < blocks_.size()) blocks_[index] = hash;
  if (--missing_blocks_ > 0) return;
  Sha256 whole;
  Check(EVP_Digest(blocks_.data(), blocks_.size() * sizeof(Sha256),
                   whole.data(), nullptr, EVP_sha256(), nullptr));
  matches_ = wanted_.size() == whole.size() &&
             std::memcmp(wanted_.data(), whole.data(), whole.size()) == 0;
}

absl::Status MatrixDigest::AddFragment(RangeDigest::Fragment fragment) {
  const uint64_t index = fragment.offset / kDigestBlockBytes;
  Fragments& parts = cut_blocks_[index];
  held_bytes_ += fragment.bytes.size();
  parts.emplace(fragment.offset, std::move(fragment.bytes));
  uint64_t size = 0;
  for (const auto& [offset, bytes] : parts) size += bytes.size();
  if (size < BlockEnd(index, total_) - BlockBegin(index)) {
    if (held_bytes_ <= kMaxHeldBytes) return absl::OkStatus();
    return QuotaError(
        "upload-digest",
        absl::StrCat("the row ranges of the streams cut too many digest "
                     "blocks: ",
                     held_bytes_, " bytes of them wait for their rest, ",
                     kMaxHeldBytes, " may; send neighbouring ranges together"),
        kRetryDelay);
  }
  const std::unique_ptr<EVP_MD_CTX, RangeDigest::ContextDeleter> context(
      EVP_MD_CTX_new());
  Begin(context.get());
  for (const auto& [offset, bytes] : parts) {
    Check(EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()));
  }
  SetBlock(index, End(context.get()));
  held_bytes_ -= size;
  cut_blocks_.erase(index);
  return absl::OkStatus();
}

}  // namespace gemmd
