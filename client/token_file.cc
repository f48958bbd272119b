#include "client/token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
constexpr size_t kMaxFileBytes = 2 * kMaxTokenBytes;

absl::Status Bad(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the token file ", path, why));
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino &&
         a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

}  // namespace

absl::Status CheckToken(absl::string_view token) {
  const bool good =
      !token.empty() && token.size() <= kMaxTokenBytes &&
      std::all_of(token.begin(), token.end(),
                  [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a token of ", token.size(), " bytes; wanted are 1 to ",
                   kMaxTokenBytes, " printable characters and no space"));
}

absl::Status TokenFile::Read() {
  std::lock_guard<std::mutex> lock(mu_);
  return ReadLocked();
}

absl::Status TokenFile::ReadLocked() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Bad(path_, absl::StrCat(": ", std::strerror(errno)));
  const absl::Cleanup close_file = [fd] { close(fd); };
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return Bad(path_, " is not a regular file");
  }
  std::string text(kMaxFileBytes, '\0');
  const ssize_t got = read(fd, text.data(), text.size());
  if (got < 0) return Bad(path_, absl::StrCat(": ", std::strerror(errno)));
  text.resize(static_cast<size_t>(got));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (absl::Status good = CheckToken(token); !good.ok()) {
    return Bad(path_,
               absl::StrCat(" does not hold one token and nothing else: ",
                            good.message()));
  }
  token_ = std::string(token);
  seen_ = status;
  return absl::OkStatus();
}

std::string TokenFile::Get() {
  std::lock_guard<std::mutex> lock(mu_);
  struct stat now {};
  if (stat(path_.c_str(), &now) == 0 && !IsSame(now, seen_)) {
    ReadLocked().IgnoreError();  // then the last one, until there is a token
  }
  return token_;
}

}  // namespace gemmd::client
