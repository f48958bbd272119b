// TLS files that are replaced while the client lives.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "client/tls_files.h"
#include "gemmd/tls.h"

namespace gemmd::client {

// Looks at the files when it is asked to, once a second at most, and gives what
// they hold only where all of it fits together: while a certificate is there
// and its key is not yet, or a file is half written, the last good contents
// stay the ones to use. So they may be replaced one by one.
//
// Thread-compatible. Blocks as long as reading three small files takes.
class TlsRotation {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{1};

  explicit TlsRotation(TlsOptions options) : options_(std::move(options)) {}

  // Whether current() is new: the first time, and after that where the files
  // hold something else that is good.
  bool Look(Clock::time_point now, absl::Time date);

  // The last good contents. Needs: there were some.
  const TlsContents& current() const { return *current_; }

  // What is wrong with the files as they were last seen, or "".
  const std::string& problem() const { return problem_; }

 private:
  const TlsOptions options_;
  std::optional<Clock::time_point> looked_;
  std::optional<TlsContents> current_;
  std::string problem_;
};

}  // namespace gemmd::client
