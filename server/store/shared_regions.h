// The memory that clients share with the server.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/execute/backend.h"
#include "server/execute/job_threads.h"
#include "server/mutex.h"

namespace gemmd {

// A region, mapped and (on CUDA) registered, so that copies go straight to and
// from the client's pages; until nobody holds it any more.
class SharedRegion {
 public:
  virtual ~SharedRegion() = default;
  virtual std::byte* data() const = 0;  // page-aligned
  virtual size_t size() const = 0;
};

struct SharedRegionsOptions {
  int max_regions = 1024;
  // Of all regions together; 0: half of the container's memory.
  size_t max_bytes = 0;
};

// Regions by their ids: 128 random bits, which nobody but the client that was
// told one can know.
//
// Thread-safe. Regions that products hold may outlive it. Whoever holds one
// last does not wait for it to be unmapped, which takes milliseconds for a GB
// of registered memory and would hold up a device's thread: a thread here does
// it.
class SharedRegions {
 public:
  // `backend` outlives all regions.
  SharedRegions(const SharedRegionsOptions& options, Backend* backend);

  // Maps the first `bytes` of `memfd`, which stays the caller's, and gives the
  // region's id. May block.
  //
  // INVALID_ARGUMENT for what is no memfd, is not sealed against shrinking
  // (whoever shrinks it would end this process), is smaller than `bytes`, or
  // cannot be written to; RESOURCE_EXHAUSTED past the limits.
  absl::StatusOr<std::string> Add(int memfd, uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // The id is good for nothing any more; who holds the region keeps it.
  void Remove(absl::string_view id) ABSL_LOCKS_EXCLUDED(mu_);

  // Null: there is none.
  std::shared_ptr<SharedRegion> Find(absl::string_view id) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Mapped now, those that only products hold too.
  int regions() const;
  size_t bytes() const;

 private:
  class Budget;
  class MappedRegion;

  Backend* const backend_;
  const std::shared_ptr<Budget> budget_;
  const std::shared_ptr<JobThreads> unmapping_;  // outlives by_id_
  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<SharedRegion>, std::less<>> by_id_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
