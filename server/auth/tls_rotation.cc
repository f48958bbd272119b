#include "server/auth/tls_rotation.h"

namespace gemmd {

absl::StatusOr<bool> TlsRotation::Look(MonotonicTime now, absl::Time date) {
  if (looked_.has_value() && now - *looked_ < kInterval) return false;
  looked_ = now;
  absl::StatusOr<TlsContents> contents = ReadTlsFiles(files_, date);
  if (!contents.ok()) {
    if (contents.status().message() == told_) return false;
    told_ = std::string(contents.status().message());
    return contents.status();
  }
  told_.clear();
  if (*contents == current_) return false;
  current_ = *std::move(contents);
  return true;
}

}  // namespace gemmd
