#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/npy_header.h"
#include "gemmd/npy.h"

namespace gemmd {
namespace {

// What is written is the memory of a float as it is.
static_assert(std::endian::native == std::endian::little);

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

// OK, or the system's reason in errno.
bool WriteAll(int fd, const void* buffer, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put =
        write(fd, static_cast<const char*>(buffer) + done, bytes - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += put;
  }
  return true;
}

bool WriteMatrix(int fd, const MatrixView& matrix) {
  const std::string header = client::NpyHeaderBytes(matrix.rows, matrix.cols);
  if (!WriteAll(fd, header.data(), header.size())) return false;
  if (matrix.rows == 0 || matrix.cols == 0) return true;
  const bool packed =
      matrix.leading_dimension == 0 || matrix.leading_dimension == matrix.cols;
  const size_t row_bytes = sizeof(float) * matrix.cols;
  if (packed) return WriteAll(fd, matrix.data, row_bytes * matrix.rows);
  for (int64_t i = 0; i < matrix.rows; ++i) {
    const float* row = matrix.data + i * matrix.leading_dimension;
    if (!WriteAll(fd, row, row_bytes)) return false;
  }
  return true;
}

std::string TemporaryName(const std::string& path) {
  std::random_device random;
  return absl::StrCat(path, ".", absl::Hex(random(), absl::kZeroPad8), ".tmp");
}

std::string Directory(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// A file that has no name yet, so that nothing is left behind when the process
// is killed; named at once where the file system knows no nameless ones.
int OpenNew(const std::string& path, std::string* name) {
  name->clear();
  int fd =
      open(Directory(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    *name = TemporaryName(path);
    fd = open(name->c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  }
  return fd;
}

// Gives a nameless file a temporary name.
bool GiveName(int fd, const std::string& path, std::string* name) {
  *name = TemporaryName(path);
  const std::string self = absl::StrCat("/proc/self/fd/", fd);
  return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name->c_str(),
                AT_SYMLINK_FOLLOW) == 0;
}

// `old`, if any, is what is replaced: its mode and, as far as the system lets
// us, its owner stay.
absl::Status ReplaceFile(const std::string& path, const struct stat* old,
                         const MatrixView& matrix) {
  std::string name;
  const int fd = OpenNew(path, &name);
  if (fd < 0) return SystemError(path, "cannot create it");
  const absl::Cleanup closer = [fd] { close(fd); };
  if (old != nullptr) {
    (void)!fchown(fd, old->st_uid, old->st_gid);
    (void)!fchmod(fd, old->st_mode & 07777);
  }
  absl::Status status;
  if (!WriteMatrix(fd, matrix)) {
    status = SystemError(path, "cannot write it");
  } else if (name.empty() && !GiveName(fd, path, &name)) {
    status = SystemError(path, "cannot name it");
    name.clear();
  } else if (rename(name.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "cannot put it in place");
  } else {
    return absl::OkStatus();
  }
  if (!name.empty()) unlink(name.c_str());
  return status;
}

absl::Status WriteInto(const std::string& path, const MatrixView& matrix) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "cannot open it");
  const absl::Cleanup closer = [fd] { close(fd); };
  if (!WriteMatrix(fd, matrix)) return SystemError(path, "cannot write it");
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteNpy(const std::string& path, const MatrixView& matrix) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return ReplaceFile(path, nullptr, matrix);
  }
  if (!S_ISREG(info.st_mode)) return WriteInto(path, matrix);
  // A link stays, and what it leads to is replaced.
  const std::unique_ptr<char, decltype(&free)> real(
      realpath(path.c_str(), nullptr), free);
  if (real == nullptr) return SystemError(path, "cannot find it");
  return ReplaceFile(real.get(), &info, matrix);
}

}  // namespace gemmd
