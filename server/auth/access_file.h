// An access list that is read anew while the server runs.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/access_list.h"
#include "server/mutex.h"

namespace gemmd {

// Thread-safe. A list that was got stays as it is; the next Get has the new
// one.
class AccessFile {
 public:
  // Errors: those of AccessList::Parse, or the operating system's reason, with
  // the path. FAILED_PRECONDITION also for a file that everybody may write to,
  // or that is over 1 MiB.
  static absl::StatusOr<std::unique_ptr<AccessFile>> Open(std::string path);

  // Never null.
  std::shared_ptr<const AccessList> Get() const ABSL_LOCKS_EXCLUDED(mu_);

  // Reads the file again. On an error the list stays the one it was.
  absl::Status Reload() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit AccessFile(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  mutable Mutex mu_;
  std::shared_ptr<const AccessList> list_ ABSL_GUARDED_BY(mu_);
};

}  // namespace gemmd
