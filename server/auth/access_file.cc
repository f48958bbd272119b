#include "server/auth/access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status SystemError(const std::string& path, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": ", std::strerror(error)));
}

// From one descriptor, so that a file swapped meanwhile is read whole or not
// at all.
absl::StatusOr<std::string> ReadWhole(const std::string& path, int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return SystemError(path, errno);
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a regular file"));
  }
  if ((status.st_mode & S_IWOTH) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " may be written to by everybody; chmod o-w it"));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxFileBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " is over ", kMaxFileBytes, " bytes; is it an access file?"));
  }
  text.resize(size);
  return text;
}

absl::StatusOr<AccessList> Read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, errno);
  const absl::StatusOr<std::string> text = ReadWhole(path, fd);
  close(fd);
  if (!text.ok()) return text.status();
  absl::StatusOr<AccessList> list = AccessList::Parse(*text);
  if (list.ok()) return list;
  return absl::Status(list.status().code(),
                      absl::StrCat(path, ": ", list.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessFile>> AccessFile::Open(std::string path) {
  auto file = absl::WrapUnique(new AccessFile(std::move(path)));
  if (absl::Status status = file->Reload(); !status.ok()) return status;
  return file;
}

std::shared_ptr<const AccessList> AccessFile::Get() const {
  MutexLock lock(&mu_);
  return list_;
}

absl::Status AccessFile::Reload() {
  absl::StatusOr<AccessList> read = Read(path_);
  if (!read.ok()) return read.status();
  auto list = std::make_shared<const AccessList>(*std::move(read));
  MutexLock lock(&mu_);
  list_.swap(list);
  return absl::OkStatus();
}

}  // namespace gemmd
