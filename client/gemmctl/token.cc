// token.

#include <fcntl.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/gemmctl/commands.h"
#include "client/gemmctl/exit_code.h"

namespace gemmd::gemmctl {
namespace {

// What the server's access file takes (SECURITY.md).
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kSaltBytes = 16;
constexpr size_t kSecretBytes = 32;

absl::Status Check(const TokenOptions& options) {
  const std::string& name = options.name;
  const bool good =
      !name.empty() && name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) ||
               absl::string_view("._:/@-").find(c) != absl::string_view::npos;
      });
  if (!good) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name \"", name, "\" has ", name.size(), " bytes; wanted are 1 to ",
        kMaxNameBytes, " of [A-Za-z0-9._:/@-]"));
  }
  for (const absl::string_view role : absl::StrSplit(options.roles, ',')) {
    if (role == "compute" || role == "info") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", role, "\" is no role; wanted is compute, info or compute,info"));
  }
  return absl::OkStatus();
}

// Random bytes, raw.
absl::StatusOr<std::string> Random(size_t bytes) {
  std::string random(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(random.data()),
                 static_cast<int>(bytes)) == 1) {
    return random;
  }
  return absl::InternalError("this machine has no random numbers");
}

// The line that lets whoever has `token` in.
std::string Entry(const TokenOptions& options, const std::string& salt,
                  const std::string& token) {
  const std::string salted = salt + token;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(salted.data()), salted.size(),
         hash.data());
  const absl::string_view bytes(reinterpret_cast<const char*>(hash.data()),
                                hash.size());
  return absl::StrCat(options.name, " ", options.roles,
                      " sha256:", absl::BytesToHexString(salt), ":",
                      absl::BytesToHexString(bytes));
}

// A new file: one that is there may be in use.
absl::Status WriteSecret(const std::string& path, const std::string& token) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make ", path, ": ", std::strerror(errno)));
  }
  const std::string line = token + "\n";
  const bool written =
      write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const int error = errno;
  if (close(fd) == 0 && written) return absl::OkStatus();
  unlink(path.c_str());
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(error)));
}

}  // namespace

int RunToken(const CommandLine& line) {
  const TokenOptions& options = line.token;
  absl::Status status = Check(options);
  if (!status.ok()) return Fail(status, kUsage);
  const absl::StatusOr<std::string> salt = Random(kSaltBytes);
  const absl::StatusOr<std::string> secret = Random(kSecretBytes);
  if (!salt.ok() || !secret.ok()) {
    return Fail(salt.ok() ? secret.status() : salt.status(), kFailed);
  }
  const std::string token =
      absl::StrCat(options.name, ".", absl::BytesToHexString(*secret));
  status = WriteSecret(options.file, token);
  if (!status.ok()) return Fail(status, kUsage);
  const std::string entry = Entry(options, *salt, token);
  if (std::printf("%s\n", entry.c_str()) > 0 && std::fflush(stdout) == 0) {
    return kOk;
  }
  unlink(options.file.c_str());  // no server will ever know it
  return Fail(absl::InternalError("the entry cannot be written"), kFailed);
}

}  // namespace gemmd::gemmctl
