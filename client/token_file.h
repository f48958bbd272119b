// A bearer token in a file that may change.

#pragma once

#include <sys/stat.h>

#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd::client {

// INVALID_ARGUMENT unless it is 1 to 4096 printable characters without a space,
// as metadata may hold; never with the token.
absl::Status CheckToken(absl::string_view token);

// Thread-safe.
class TokenFile {
 public:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}

  // The token in the file, blanks around it left out. INVALID_ARGUMENT with the
  // path and what is wrong. For the first time, and to check.
  absl::Status Read();

  // The token; read again if the file is not the one it was (one stat(2) else).
  // While it cannot be read, the last one.
  std::string Get();

 private:
  absl::Status ReadLocked();

  const std::string path_;
  std::mutex mu_;
  std::string token_;    // guarded by mu_
  struct stat seen_ {};  // guarded by mu_; of the file that token_ is from
};

}  // namespace gemmd::client
