// TLS files that are replaced while the server runs.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/auth/tls_files.h"
#include "server/monotonic_time.h"

namespace gemmd {

// Looks at the files when it is asked to, once a second at most, and gives what
// they hold only where all of it fits together: while a certificate is there
// and its key is not yet, or a file is half written, the last good contents
// stay the ones to use. So they may be replaced one by one.
//
// Thread-compatible. Blocks as long as reading three small files takes.
class TlsRotation {
 public:
  static constexpr std::chrono::seconds kInterval{1};

  // `current`: what ReadTlsFiles said of them.
  TlsRotation(TlsFiles files, TlsContents current)
      : files_(std::move(files)), current_(std::move(current)) {}

  // The last good contents.
  const TlsContents& current() const { return current_; }

  // True: current() is new. An error of ReadTlsFiles where the files cannot be
  // used as they are now; each text of it once until there are good files
  // again.
  absl::StatusOr<bool> Look(MonotonicTime now, absl::Time date);

 private:
  const TlsFiles files_;
  std::optional<MonotonicTime> looked_;
  TlsContents current_;
  std::string told_;  // the last error's text
};

}  // namespace gemmd
