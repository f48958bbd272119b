#include "server/store/shared_regions.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/error_details.h"
#include "proto/shared_memory.h"
#include "server/execute/memory_limit.h"
#include "server/monotonic_time.h"

namespace gemmd {
namespace {

constexpr absl::Duration kRetryDelay = absl::Seconds(1);

std::string MintRegionId() {
  std::string id(kRegionIdBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(id.data()),
                 static_cast<int>(id.size())) != 1) {
    std::fputs("gemmd: no random numbers\n", stderr);
    std::abort();
  }
  return id;
}

absl::Status CheckMemfd(int memfd, uint64_t bytes) {
  const int seals = fcntl(memfd, F_GET_SEALS);
  struct stat info;
  if (seals < 0 || fstat(memfd, &info) != 0) {
    return absl::InvalidArgumentError("a memfd that can be sealed is wanted");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError(
        "the memfd must be sealed against shrinking (F_SEAL_SHRINK)");
  }
  if (bytes == 0 || bytes > static_cast<uint64_t>(info.st_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the region has ", bytes, " bytes; from 1 to the memfd's ",
                     info.st_size, " are wanted"));
  }
  return absl::OkStatus();
}

}  // namespace

// What all regions hold. Regions may outlive SharedRegions, so they share it.
class SharedRegions::Budget {
 public:
  explicit Budget(const SharedRegionsOptions& options)
      : max_regions_(options.max_regions),
        max_bytes_(options.max_bytes > 0 ? options.max_bytes
                                         : MemoryLimit() / 2) {}

  absl::Status Take(uint64_t bytes) {
    MutexLock lock(&mu_);
    if (regions_ >= max_regions_) {
      return QuotaError("shared-regions",
                        absl::StrCat("there are ", regions_,
                                     " shared regions, as many as can be"),
                        kRetryDelay);
    }
    if (bytes > max_bytes_ - bytes_) {
      return QuotaError(
          "shared-bytes",
          absl::StrCat(bytes_, " of ", max_bytes_, " bytes are shared; ", bytes,
                       " more do not fit"),
          kRetryDelay);
    }
    ++regions_;
    bytes_ += bytes;
    return absl::OkStatus();
  }

  void Return(size_t bytes) {
    MutexLock lock(&mu_);
    --regions_;
    bytes_ -= bytes;
  }

  int regions() const {
    MutexLock lock(&mu_);
    return regions_;
  }
  size_t bytes() const {
    MutexLock lock(&mu_);
    return bytes_;
  }

 private:
  const int max_regions_;
  const size_t max_bytes_;
  mutable Mutex mu_;
  int regions_ ABSL_GUARDED_BY(mu_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

class SharedRegions::MappedRegion : public SharedRegion {
 public:
  // Takes over the mapping and its share of the budget.
  MappedRegion(void* data, size_t size, Backend* backend,
               std::shared_ptr<Budget> budget)
      : data_(static_cast<std::byte*>(data)),
        size_(size),
        backend_(backend),
        budget_(std::move(budget)),
        // Without it copies are slower and right.
        pinned_(backend->Pin(data_, size_).ok()) {}

  ~MappedRegion() override {
    if (pinned_) backend_->Unpin(data_);
    munmap(data_, size_);
    budget_->Return(size_);
  }

  std::byte* data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  std::byte* const data_;
  const size_t size_;
  Backend* const backend_;
  const std::shared_ptr<Budget> budget_;
  const bool pinned_;
};

SharedRegions::SharedRegions(const SharedRegionsOptions& options,
                             Backend* backend)
    : backend_(backend),
      budget_(std::make_shared<Budget>(options)),
      unmapping_(std::make_shared<JobThreads>(1, "gemmd-unmap-")) {}

absl::StatusOr<std::string> SharedRegions::Add(int memfd, uint64_t bytes) {
  if (absl::Status s = CheckMemfd(memfd, bytes); !s.ok()) return s;
  if (absl::Status s = budget_->Take(bytes); !s.ok()) return s;
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
  if (data == MAP_FAILED) {
    budget_->Return(bytes);
    return absl::InvalidArgumentError(
        "the memfd cannot be mapped for reading and writing");
  }
  std::shared_ptr<SharedRegion> region(
      new MappedRegion(data, bytes, backend_, budget_),
      [unmapping = std::weak_ptr<JobThreads>(unmapping_)](SharedRegion* gone) {
        const auto thread = unmapping.lock();
        if (thread == nullptr) {
          delete gone;  // the server has ended: nobody is held up
        } else {
          thread->Post([gone] { delete gone; });
        }
      });
  std::string id = MintRegionId();
  MutexLock lock(&mu_);
  by_id_.emplace(id, std::move(region));
  return id;
}

void SharedRegions::Remove(absl::string_view id) {
  std::shared_ptr<SharedRegion> region;  // goes when the lock is not held
  MutexLock lock(&mu_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  region = std::move(found->second);
  by_id_.erase(found);
}

std::shared_ptr<SharedRegion> SharedRegions::Find(absl::string_view id) const {
  MutexLock lock(&mu_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

int SharedRegions::regions() const { return budget_->regions(); }
size_t SharedRegions::bytes() const { return budget_->bytes(); }

}  // namespace gemmd
