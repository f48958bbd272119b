#include "client/tls_rotation.h"

#include "absl/status/statusor.h"

namespace gemmd::client {

bool TlsRotation::Look(Clock::time_point now, absl::Time date) {
  if (looked_.has_value() && now - *looked_ < kInterval) return false;
  looked_ = now;
  absl::StatusOr<TlsContents> contents = ReadTlsFiles(options_, date);
  problem_ = std::string(contents.status().message());
  if (!contents.ok() || current_ == *contents) return false;
  current_ = *std::move(contents);
  return true;
}

}  // namespace gemmd::client
