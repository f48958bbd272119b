#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/npy_header.h"
#include "gemmd/npy.h"

namespace gemmd {
namespace {

// What is read is the memory of a float as it is.
static_assert(std::endian::native == std::endian::little);

using client::NpyHeader;

// NumPy itself distrusts headers over 10,000 bytes.
constexpr uint32_t kMaxDictionaryBytes = 1 << 20;

absl::Status InvalidFile(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::Status SystemError(const std::string& path, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": ", what));
}

// As many of `bytes` as there are.
absl::StatusOr<size_t> ReadUpTo(int fd, void* buffer, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        read(fd, static_cast<char*>(buffer) + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, "cannot read");
    if (got == 0) break;
    done += got;
  }
  return done;
}

// Exactly `bytes`, or an error that counts both.
absl::Status ReadExactly(int fd, const std::string& path,
                         absl::string_view what, void* buffer, size_t bytes) {
  const absl::StatusOr<size_t> got = ReadUpTo(fd, buffer, bytes);
  if (!got.ok()) {
    return absl::Status(got.status().code(),
                        absl::StrCat(path, ": ", got.status().message()));
  }
  if (*got < bytes) {
    return InvalidFile(
        path, absl::StrCat("the file is truncated: ", what, " has ", *got,
                           " bytes, wanted ", bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<NpyHeader> ReadHeader(int fd, const std::string& path) {
  char preamble[12];
  absl::Status status =
      ReadExactly(fd, path, "its start", preamble, client::kNpyMagicBytes);
  if (!status.ok()) return status;
  const absl::StatusOr<size_t> bytes =
      client::NpyPreambleBytes({preamble, client::kNpyMagicBytes});
  if (!bytes.ok()) return InvalidFile(path, bytes.status().message());
  status = ReadExactly(fd, path, "its start", preamble + client::kNpyMagicBytes,
                       *bytes - client::kNpyMagicBytes);
  if (!status.ok()) return status;
  const uint32_t length = client::NpyDictionaryBytes({preamble, *bytes});
  if (length > kMaxDictionaryBytes) {
    return InvalidFile(path, absl::StrCat("the .npy header claims ", length,
                                          " bytes; at most ",
                                          kMaxDictionaryBytes, " are read"));
  }
  std::string dictionary(length, '\0');
  status = ReadExactly(fd, path, "its header", dictionary.data(), length);
  if (!status.ok()) return status;
  absl::StatusOr<NpyHeader> header = client::ParseNpyDictionary(dictionary);
  if (!header.ok()) return InvalidFile(path, header.status().message());
  return header;
}

// OK for a float32 array of two dimensions; sets its size in bytes.
absl::Status CheckHeader(const NpyHeader& header, const std::string& path,
                         size_t* bytes) {
  const std::string name = client::NpyTypeName(header.descr);
  if (name != "float32") {
    return InvalidFile(
        path, absl::StrCat("holds ", name == header.descr ? "" : name + ", ",
                           client::Quoted(header.descr),
                           "; wanted is float32: with NumPy, save ",
                           name == "a record" ? "one field of x" : "x",
                           ".astype('float32') instead"));
  }
  const std::vector<uint64_t>& shape = header.shape;
  if (shape.size() == 1) {
    return InvalidFile(
        path,
        absl::StrCat("has one dimension, (", shape[0],
                     ",); wanted are two: save it with NumPy as a row, "
                     ".reshape(1, ",
                     shape[0], "), or a column, .reshape(", shape[0], ", 1)"));
  }
  if (shape.size() != 2) {
    return InvalidFile(
        path, absl::StrCat("has ", shape.size(), " dimensions, (",
                           absl::StrJoin(shape, ", "),
                           "); wanted are two: "
                           "choose a matrix of it, or reshape it with NumPy"));
  }
  size_t count = 0;
  if (shape[0] > INT64_MAX || shape[1] > INT64_MAX ||
      __builtin_mul_overflow(shape[0], shape[1], &count) ||
      __builtin_mul_overflow(count, sizeof(float), bytes)) {
    return InvalidFile(
        path, absl::StrCat("claims the shape (", absl::StrJoin(shape, ", "),
                           "), more than memory can hold"));
  }
  return absl::OkStatus();
}

// The file's numbers must fill what is left of it, no more and no less.
absl::Status CheckSize(int fd, const std::string& path, size_t bytes) {
  struct stat info;
  const off_t begin = lseek(fd, 0, SEEK_CUR);
  if (begin < 0 || fstat(fd, &info) != 0) {
    return SystemError(path, "cannot tell its size");
  }
  const size_t left = info.st_size > begin ? info.st_size - begin : 0;
  if (left < bytes) {
    return InvalidFile(path, absl::StrCat("the file is truncated: its numbers "
                                          "have ",
                                          left, " bytes, wanted ", bytes));
  }
  if (left > bytes) {
    return InvalidFile(
        path, absl::StrCat("has ", left - bytes, " bytes after the array's ",
                           bytes, "; wanted is one array and nothing else"));
  }
  return absl::OkStatus();
}

void SwapBytes(Matrix* matrix) {
  const size_t count = matrix->rows() * matrix->cols();
  for (float* x = matrix->data(); x != matrix->data() + count; ++x) {
    *x = std::bit_cast<float>(__builtin_bswap32(std::bit_cast<uint32_t>(*x)));
  }
}

}  // namespace

absl::StatusOr<NpyMatrix> ReadNpy(const std::string& path) {
  // A pipe would have it wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) {
      return absl::NotFoundError(absl::StrCat(path, ": no such file"));
    }
    return SystemError(path, "cannot open");
  }
  const absl::Cleanup closer = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return SystemError(path, "cannot look at it");
  if (!S_ISREG(info.st_mode)) {
    return InvalidFile(path, S_ISDIR(info.st_mode)
                                 ? "is a directory; wanted is a .npy file"
                                 : "is no regular file; wanted is a .npy file");
  }
  if (info.st_size == 0) {
    return InvalidFile(path, "the file is empty; wanted is a .npy file");
  }
  absl::StatusOr<NpyHeader> header = ReadHeader(fd, path);
  if (!header.ok()) return header.status();
  size_t bytes = 0;
  absl::Status status = CheckHeader(*header, path, &bytes);
  if (status.ok()) status = CheckSize(fd, path, bytes);
  if (!status.ok()) return status;

  NpyMatrix matrix{.transposed = header->fortran_order};
  std::vector<uint64_t> stored_shape = header->shape;
  if (matrix.transposed) std::swap(stored_shape[0], stored_shape[1]);
  try {
    matrix.stored = Matrix(stored_shape[0], stored_shape[1]);
  } catch (const std::bad_alloc&) {  // a file's claim is no fault of the caller
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": its ", bytes, " bytes do not fit in this machine's memory"));
  }
  status = ReadExactly(fd, path, "its numbers", matrix.stored.data(), bytes);
  if (!status.ok()) return status;
  if (header->descr[0] == '>') SwapBytes(&matrix.stored);
  return matrix;
}

}  // namespace gemmd
